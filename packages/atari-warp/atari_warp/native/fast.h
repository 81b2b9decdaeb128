    // --- 6507, fast ----------------------------------------------------------------------------------------------
    // Frequent instructions, a second time: code in the cartridge whose operands are in ROM, in RAM or in registers of
    // TIA and RIOT. The processor's registers are local variables, as members would be loaded again after every store
    // of a byte. Accesses without an effect are left out. Any other case is left to instruction(), which is slow and
    // complete, before it has had an effect.

    // Play until the frame ends, or for the maximum number of instructions.
    CUDA_CALLABLE void run() {
        for (i32 left = INSTRUCTIONS; left > 0 && !ended;) {
            if (trace) {
                if (pc & 0x1000)
                    trace[bank[pc >> 10 & 3] + (pc & 1023)] = (u8)(0x80 | (pc >> 10 & 3) << 3 | pc >> 13);
            } else {
                left = compiled(left);
                if (left <= 0 || ended) return;
                i32 before = left;
                left = fast(left);
                if (left != before) continue;
            }
            instruction(), left--;
        }
    }

    static CUDA_CALLABLE bool in_ram(i32 address) { return (address & 0x1280) == 0x80; }

    // Whether an address in the cartridge is a register of the DPC; such accesses switch no bank.
    CUDA_CALLABLE bool in_dpc(i32 address) const { return scheme == DPC && (address & 0xfff) < Dpc::REGISTERS; }

    // Write to the TIA at the end of cycle `end`, and return the cycle at which the processor continues.
    CUDA_CALLABLE APART i32 written(i32 reg, i32 value, i32 end) {
        t = end;
        write_tia(reg & 0x3f, value);
        return t;
    }

    // The function above for a known register, so that compilers remove most of it.
    CUDA_CALLABLE HERE i32 written_here(i32 reg, i32 value, i32 end) {
        reg &= 0x3f;
        if (reg < 4 && reg != 2) return written(reg, value, end);
        if (reg == 0x1b) return first_graphic_changed(value, end);
        if (reg == 0x1c) return second_graphic_changed(value, end);
        if (reg >= 4 && Tia::draws(reg) && !tia.is_there(reg, (u8)value)) {
            if (reg >= 0x0d && reg <= 0x0f) return playfield_changed(reg, value, end);
            if (!Tia::moves(reg)) return changed(reg, value, end);
            tia.motion[reg - 0x20] = (u8)(value >> 4);
        }
        access_tia(end);
        return reg == 2 ? (end + CYCLES - 1) / CYCLES * CYCLES : end;
    }

    CUDA_CALLABLE void access_tia(i32 end) {
        touched = 3 * end;
        if (end >= limit) ended = 1;
    }

    CUDA_CALLABLE APART i32 changed(i32 reg, i32 value, i32 end) {
        access_tia(end);
        tia.last[reg] = (u8)value;
        tia.change(reg, (u8)value, 3 * end);
        return end;
    }

    CUDA_CALLABLE APART i32 first_graphic_changed(i32 value, i32 end) {
        access_tia(end);
        tia.set_graphic(0, (u8)value, 3 * end);
        return end;
    }

    CUDA_CALLABLE APART i32 second_graphic_changed(i32 value, i32 end) {
        access_tia(end);
        tia.set_graphic(1, (u8)value, 3 * end);
        return end;
    }

    CUDA_CALLABLE APART i32 playfield_changed(i32 reg, i32 value, i32 end) {
        access_tia(end);
        tia.last[reg] = (u8)value;
        tia.set_playfield(reg - 0x0d, (u8)value, 3 * end);
        return end;
    }

    CUDA_CALLABLE APART i32 read_at(i32 address, i32 bus, i32 end) {
        t = end;
        return read(address, bus);
    }

    // Read the TIA through the zero page.
    CUDA_CALLABLE i32 read_here(i32 address, i32 bus, i32 end) {
        i32 reg = address & 15;
        if (reg < 8) return read_at(address, bus, end);
        touched = 3 * end;
        return (reg >= 14 ? 0 : reg >= 12 ? inpt[reg - 8] : charge(reg - 8, end)) | (bus & 0x3f);
    }

    // Pull where the stack wraps or is not RAM: its previous address is read at the end of cycle `end` as well.
    CUDA_CALLABLE APART i32 pulled(i32 pointer, i32 opcode, i32 end) {
        t = end;
        i32 bus = read(0x100 | pointer, opcode);
        t = end + 1;
        return read(0x100 | ((pointer + 1) & 0xff), bus);
    }

    // Return how often a `loop` that waits for the timer repeats: a read of the timer of three bytes, and a branch
    // back, which is taken now. Nothing else changes until the value of the timer does. A round takes `cycles`; the
    // last read was at the end of cycle `last`, and left the flags `nz`.
    CUDA_CALLABLE APART i32 waits(const u8* loop, i32 last, i32 cycles, i32 accumulator, i32 nz) const {
        i32 address = loop[1] | loop[2] << 8;
        if ((address & 0x1284) != 0x284) return 0;
        const i64 since = (i64)(u32)(before + (u32)last - timer_at) - 1;
        const i32 period = 1 << timer_shift;
        i32 value = (i32)(timer_value - (since >> timer_shift) - 1);
        if (value < 0) return 0;
        if (address & 1) value = 0;  // whether the timer has expired
        switch (loop[0]) {
            case 0xad: case 0xae: case 0xac: break;  // LDA, LDX, LDY
            case 0x2c:                               // BIT
                if ((loop[3] & 0xdf) == 0x50) return 0;
                value = (value & 0x80) << 1 | ((accumulator & value) != 0);
                break;
            default: return 0;
        }
        return value == nz ? (i32)(period - 1 - (since & (period - 1))) / cycles : 0;
    }

// An instruction computes the address `at` of its operand `m`, and the last byte on the data `bus`; `base` is the
// address before an index is added. It has no effect before it is certain that it need not be left to instruction().

#define ZERO_PAGE at = BYTE(1), bus = at;
#define ZERO_PAGE_INDEXED(index) base = BYTE(1), at = (base + (index)) & 0xff;
#define ABSOLUTE bus = BYTE(2), at = BYTE(1) | bus << 8;
#define ABSOLUTE_INDEXED(index) bus = BYTE(2), base = BYTE(1) | bus << 8, at = (base + (index)) & 0xffff;
#define INDIRECT_INDEXED                         \
    base = BYTE(1);                              \
    if (base < 0x80 || base == 0xff) goto other; \
    bus = ram[base - 0x7f], base = ram[base - 0x80] | bus << 8, at = (base + y) & 0xffff;

// Do `action` with the value that is read at the end of the instruction. A read before the index has reached its page
// matters to a display processor only.
#define READ(bytes, cycles, action) READ_AFTER(false, bytes, cycles, action)
#define READ_AFTER(another, bytes, cycles, action)                        \
    {                                                                     \
        if ((u32)(at & 0x1fff) - rom_first < rom_size) m = cartridge(at); \
        else if (in_ram(at)) m = ram[at & 0x7f];                          \
        else if ((at & 0x1000) && (another || !in_dpc(at))) goto other;   \
        else m = read_at(at, bus, t + cycles);                            \
        action;                                                           \
        NEXT(bytes, cycles)                                               \
    }
#define READ_ZERO_PAGE(action)              \
    {                                       \
        if (at & 0x80) m = ram[at & 0x7f];  \
        else m = read_here(at, bus, t + 3); \
        action;                             \
        NEXT(2, 3)                          \
    }
#define READ_ZERO_PAGE_INDEXED(action)            \
    {                                             \
        if (at & 0x80) m = ram[at & 0x7f];        \
        else m = read_here(at, base, t + 4);      \
        action;                                   \
        NEXT(2, 4)                                \
    }
#define READ_INDEXED(bytes, cycles, action) \
    READ_AFTER(!same_page(base, at), bytes, cycles + !same_page(base, at), action)
#define WRITE(bytes, cycles, value)                          \
    {                                                        \
        if (in_ram(at)) ram[at & 0x7f] = (u8)(value);        \
        else if (at & 0x1080) goto other;                    \
        else {                                               \
            t = WRITTEN(at, value, t + cycles);              \
            WROTE(bytes)                                     \
        }                                                    \
        NEXT(bytes, cycles)                                  \
    }
#define WRITE_ABSOLUTE(value)                         \
    {                                                 \
        if (at & 0x1000 && in_dpc(at)) {              \
            write(at, value);                         \
            NEXT(3, 4)                                \
        }                                             \
        WRITE(3, 4, value)                            \
    }
#define PUSH(value)                         \
    {                                       \
        at = 0x100 | s, s = (s - 1) & 0xff; \
        WRITE(1, 3, value)                  \
    }
#define PULL(opcode)                                       \
    if (s >= 0x80 && s != 0xff) m = ram[(s + 1) & 0x7f]; \
    else m = pulled(s, opcode, t + 3);                   \
    s = (s + 1) & 0xff;
#define CHANGE(bytes, cycles, action)  \
    {                                  \
        if (!in_ram(at)) goto other;   \
        m = ram[at & 0x7f];            \
        action;                        \
        ram[at & 0x7f] = (u8)(nz = m); \
        NEXT(bytes, cycles)            \
    }

#define ADD(value)                \
    {                             \
        if (decimal) goto other;  \
        m = value;                \
        sum = a + m + carry;      \
        v = ~(a ^ m) & (a ^ sum); \
        carry = sum >> 8;         \
        nz = a = sum & 0xff;      \
    }
#define COMPARE(reg) (carry = (reg) >= m, nz = ((reg) - m) & 0xff)
#define TEST (nz = (m & 0x80) << 1 | ((a & m) != 0), v = m << 1)

#define BRANCH(taken)                                                              \
    {                                                                              \
        if (!(taken)) NEXT(2, 2)                                                   \
        base = pc + 2, at = base + (i32)(signed char)BYTE(1);                      \
        m = same_page(base, at) ? 3 : 4;                                           \
        if (BYTE(1) == 0xfb && IN_CODE(at)) {                                      \
            i32 rounds = waits(CODE(at), t, 4 + m, a, nz), most = (left - 1) / 2; \
            if (rounds > most) rounds = most;                                      \
            t += rounds * (4 + m), left -= 2 * rounds;                             \
        }                                                                          \
        JUMP(at, m)                                                                \
    }

// Load the processor's registers into local variables, and store them.
#define TAKE                                                                                            \
    i32 t = this->t, a = this->a, x = this->x, y = this->y, s = this->s, carry = this->carry;           \
    i32 nz = (nv & 0x80) << 1 | (zv != 0); /* N is bit 7 or bit 8, Z is set where the bits 0 to 7 are 0 */ \
    i32 v = overflow << 7;                 /* bit 7 is V                */                                \
    i32 at, base, bus, m, sum;
#define RETURN                                                                                            \
    {                                                                                                     \
        this->t = t, this->a = a, this->x = x, this->y = y, this->s = s, this->carry = carry;             \
        overflow = v >> 7 & 1, nv = (nz & 0x180) != 0 ? 0x80 : 0, zv = nz & 0xff;                         \
        return left;                                                                                      \
    }

// Next instruction. On a CPU each instruction ends with its own jump, which the processor predicts better than one jump
// for all, so an instruction is a label. For other compilers it is a case.
#ifdef __CUDACC__
#define OP(opcode) case opcode:
#define NEXT_INSTRUCTION goto again;
#else
#define OP(opcode) at_##opcode:
#define NEXT_INSTRUCTION goto* labels[code[pc]];
#define LABELS(row)                                                                      \
    &&at_0x##row##0, &&at_0x##row##1, &&at_0x##row##2, &&at_0x##row##3, &&at_0x##row##4, \
    &&at_0x##row##5, &&at_0x##row##6, &&at_0x##row##7, &&at_0x##row##8, &&at_0x##row##9, \
    &&at_0x##row##a, &&at_0x##row##b, &&at_0x##row##c, &&at_0x##row##d, &&at_0x##row##e, &&at_0x##row##f
#endif

// Vocabulary of instructions, besides the macros above: bytes of the instruction, and its continuation.
#define BYTE(k) ((i32)code[pc + (k)])
#define CODE(address) (code + (address))
#define IN_CODE(address) ((u32)(address) - first < size)
#define BE_CODE(address) \
    if (!IN_CODE(address)) goto other;
#define GO_ON                                               \
    {                                                       \
        if (!--left || !IN_CODE(pc)) goto other; \
        NEXT_INSTRUCTION                                    \
    }
#define NEXT(bytes, cycles)       \
    {                             \
        pc += bytes, t += cycles; \
        GO_ON                     \
    }
#define WROTE(bytes)           \
    {                          \
        pc += bytes;           \
        if (ended) goto leave; \
        GO_ON                  \
    }
#define WRITTEN written
#define GO_TO(address, cycles)     \
    {                              \
        pc = address, t += cycles; \
        if (IS_COMPILED) goto leave; \
        GO_ON                      \
    }
#define JUMP GO_TO

    // Run instructions from `pc` on, at most `left`; return how many are left.
    CUDA_CALLABLE APART i32 fast(i32 left) {
        if (!(this->pc & 0x1000)) return left;
        // Addresses without bank switching and without RAM of the cartridge: data in [rom_first, rom_first + rom_size),
        // and code in [first, first + size), which leaves room for operands.
        i32 begin = superchip ? 0x100 : scheme == DPC ? Dpc::REGISTERS : 0, end = 0x1000;
        if (scheme == F8) end = 0xff8;
        if (scheme == DPC) end = Dpc::HOT;
        if (scheme == F6) end = 0xff6;
        if (scheme == E0) end = 0xfe0;
        u32 rom_first = (u32)(0x1000 | begin), rom_size = (u32)(end - begin);
        if (scheme == E0) {
            i32 quarter = this->pc & 0xc00;
            if (begin < quarter) begin = quarter;
            if (end > quarter + 0x400) end = quarter + 0x400;
        }
        u32 first = (u32)((this->pc & 0xf000) | begin), size = (u32)(end - begin - 2);
        const u8* code = rom + bank[this->pc >> 10 & 3] - (this->pc & 0xfc00);  // indexed by the address

        i32 pc = this->pc;
        TAKE
        BE_CODE(pc)
#ifdef __CUDACC__
    again:
        switch (code[pc])
#else
        static const void* const labels[256] = {LABELS(0), LABELS(1), LABELS(2), LABELS(3), LABELS(4), LABELS(5),
                                                LABELS(6), LABELS(7), LABELS(8), LABELS(9), LABELS(a), LABELS(b),
                                                LABELS(c), LABELS(d), LABELS(e), LABELS(f)};
        NEXT_INSTRUCTION
#endif
        {
            @INSTRUCTIONS@
        }
    leave:
        left--;
    other:
        this->pc = pc;
        RETURN
    }

// The same vocabulary for an instruction at a known address, in compiled code: see rom_compiler.py.
#undef BYTE
#undef CODE
#undef IN_CODE
#undef BE_CODE
#undef NEXT
#undef WROTE
#undef GO_TO
#undef JUMP
#undef WRITTEN
#define WRITTEN written_here
#define BYTE(k) ((k) == 1 ? FIRST : SECOND)
#define CODE(address) (rom + (OFFSET + (address) - pc))
#define IN_CODE(address) NEAR
#define BE_CODE(address) \
    if ((u32)((address) & 0x1fff) - rom_first >= rom_size) goto other;
#define NEXT(bytes, cycles)     \
    {                           \
        t += cycles, left--;    \
        goto next;              \
    }
#define WROTE(bytes)            \
    {                           \
        left--;                 \
        if (!ended) goto next;  \
        to = pc + bytes;        \
        goto out;               \
    }
#define JUMP(address, cycles)   \
    {                           \
        t += cycles, left--;    \
        goto taken;             \
    }
#define GO_TO(address, cycles)                  \
    {                                           \
        to = address, t += cycles, left--;      \
        goto find;                              \
    }

    @COMPILED@
};

#undef OP
#undef NEXT_INSTRUCTION
#undef LABELS
#undef GO_ON
#undef TAKE
#undef RETURN
#undef BYTE
#undef CODE
#undef IN_CODE
#undef BE_CODE
#undef NEXT
#undef WROTE
#undef GO_TO
#undef JUMP
#undef WRITTEN
#undef ZERO_PAGE
#undef ZERO_PAGE_INDEXED
#undef ABSOLUTE
#undef ABSOLUTE_INDEXED
#undef INDIRECT_INDEXED
#undef READ
#undef READ_ZERO_PAGE
#undef READ_ZERO_PAGE_INDEXED
#undef READ_AFTER
#undef READ_INDEXED
#undef WRITE
#undef WRITE_ABSOLUTE
#undef WRITE_ZERO_PAGE_INDEXED
#undef PUSH
#undef PULL
#undef CHANGE
#undef ADD
#undef COMPARE
#undef TEST
#undef BRANCH
