    // --- 6507, fast ----------------------------------------------------------------------------------------------
    // What programs do most, once more: code in the cartridge whose operands are in ROM, in RAM or registers of the
    // TIA and the RIOT. The processor's registers are locals here (members would be loaded anew after every store of a
    // byte, which might be theirs), and accesses by the way that change nothing are left out. Where that does not go,
    // an instruction is left, before it has done anything, to instruction(), which is slow and complete.

    // Play until the frame ends, or for as many instructions as a frame may have.
    CUDA_CALLABLE void run() {
        for (i32 left = INSTRUCTIONS; left > 0 && !ended;) {
            left = fast(left);
            if (left > 0 && !ended) instruction(), left--;
        }
    }

    static CUDA_CALLABLE bool in_ram(i32 address) { return (address & 0x1280) == 0x80; }

    // Write to the TIA at the end of the cycle `end`; the cycle at which the processor goes on.
    CUDA_CALLABLE APART i32 written(i32 reg, i32 value, i32 end) {
        t = end;
        write_tia(reg & 0x3f, value);
        return t;
    }

    CUDA_CALLABLE APART i32 read_at(i32 address, i32 bus, i32 end) {
        t = end;
        return read(address, bus);
    }

    // Of zero page, before an index was added to the address and after.
    CUDA_CALLABLE APART i32 read_at_both(i32 base, i32 address, i32 end) {
        t = end;
        read(base, base);
        t = end + 1;
        return read(address, base);
    }

    // `loop` waits for the timer: an instruction that reads it, of three bytes, and a branch back to it, which is taken
    // now. As long as the timer's value stays the same nothing else happens: how many times more, if they take
    // `cycles` each, the last read was at the end of cycle `last`, and has left the flags `nz`.
    CUDA_CALLABLE APART i32 waits(const u8* loop, i32 last, i32 cycles, i32 accumulator, i32 nz) const {
        i32 address = loop[1] | loop[2] << 8;
        if ((address & 0x1284) != 0x284) return 0;
        i32 since = (i32)(before + (u32)last - timer_at) - 1, period = 1 << timer_shift;
        i32 value = timer_value - (since >> timer_shift) - 1;
        if (value < 0) return 0;
        if (address & 1) value = 0;  // whether it has run out
        switch (loop[0]) {
            case 0xad: case 0xae: case 0xac: break;  // LDA, LDX, LDY
            case 0x2c:                               // BIT
                if ((loop[3] & 0xdf) == 0x50) return 0;
                value = (value & 0x80) << 1 | ((accumulator & value) != 0);
                break;
            default: return 0;
        }
        return value == nz ? (period - 1 - (since & (period - 1))) / cycles : 0;
    }

// An instruction finds the address `at` of its operand `m`, and what is last on the data `bus`; `base` is the address
// before an index is added. It has done nothing until it knows that it need not be left to instruction().

// The instruction at `pc`: one jump after each instruction, as compilers for CPUs can make it, lets the processor guess
// better than one for all would. So an instruction is a label, or a case where there is no such jump.
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

#define BYTE(k) ((i32)code[pc + (k)])
#define GO_ON                                               \
    {                                                       \
        if (!--left || (u32)pc - first >= size) goto other; \
        NEXT_INSTRUCTION                                    \
    }
#define NEXT(bytes, cycles)       \
    {                             \
        pc += bytes, t += cycles; \
        GO_ON                     \
    }

#define ZERO_PAGE at = BYTE(1), bus = at;
#define ZERO_PAGE_INDEXED(index) base = BYTE(1), at = (base + (index)) & 0xff;
#define ABSOLUTE bus = BYTE(2), at = BYTE(1) | bus << 8;
#define ABSOLUTE_INDEXED(index) bus = BYTE(2), base = BYTE(1) | bus << 8, at = (base + (index)) & 0xffff;
#define INDIRECT_INDEXED                         \
    base = BYTE(1);                              \
    if (base < 0x80 || base == 0xff) goto other; \
    bus = ram[base - 0x7f], base = ram[base - 0x80] | bus << 8, at = (base + y) & 0xffff;

// Do `action` with what is read at the end of the instruction. A read by the way of zero page is seen by the TIA only.
#define READ(bytes, cycles, action)                                       \
    {                                                                     \
        if ((u32)(at & 0x1fff) - rom_first < rom_size) m = cartridge(at); \
        else if (in_ram(at)) m = ram[at & 0x7f];                          \
        else if (at & 0x1000) goto other;                                 \
        else m = read_at(at, bus, t + cycles);                            \
        action;                                                           \
        NEXT(bytes, cycles)                                               \
    }
#define READ_ZERO_PAGE(action)             \
    {                                      \
        if (at & 0x80) m = ram[at & 0x7f]; \
        else m = read_at(at, bus, t + 3);  \
        action;                            \
        NEXT(2, 3)                         \
    }
#define READ_ZERO_PAGE_INDEXED(action)            \
    {                                             \
        if (base & at & 0x80) m = ram[at & 0x7f]; \
        else m = read_at_both(base, at, t + 3);   \
        action;                                   \
        NEXT(2, 4)                                \
    }
#define READ_INDEXED(bytes, cycles, action) READ(bytes, cycles + !same_page(base, at), action)
#define WRITE(bytes, cycles, value)                          \
    {                                                        \
        if (in_ram(at)) ram[at & 0x7f] = (u8)(value);        \
        else if (at & 0x1080) goto other;                    \
        else {                                               \
            t = written(at, value, t + cycles), pc += bytes; \
            if (ended) goto leave;                           \
            GO_ON                                            \
        }                                                    \
        NEXT(bytes, cycles)                                  \
    }
#define WRITE_ZERO_PAGE_INDEXED(value)          \
    {                                           \
        if (base < 0x80) touched = 3 * (t + 3); \
        WRITE(2, 4, value)                      \
    }
#define PUSH(value)                         \
    {                                       \
        at = 0x100 | s, s = (s - 1) & 0xff; \
        WRITE(1, 3, value)                  \
    }
#define PULL                               \
    if (s < 0x80 || s == 0xff) goto other; \
    m = ram[++s & 0x7f];
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

// The address modes of operations on the accumulator, and of those on the memory itself.
#define ON_ACCUMULATOR(row, next, action)                               \
    OP(0x##row##9) m = BYTE(1); action; NEXT(2, 2)                      \
    OP(0x##row##5) ZERO_PAGE READ_ZERO_PAGE(action)                     \
    OP(0x##next##5) ZERO_PAGE_INDEXED(x) READ_ZERO_PAGE_INDEXED(action) \
    OP(0x##row##d) ABSOLUTE READ(3, 4, action)                          \
    OP(0x##next##d) ABSOLUTE_INDEXED(x) READ_INDEXED(3, 4, action)      \
    OP(0x##next##9) ABSOLUTE_INDEXED(y) READ_INDEXED(3, 4, action)      \
    OP(0x##next##1) INDIRECT_INDEXED READ_INDEXED(2, 5, action)
#define ON_MEMORY(row, next, action)              \
    OP(0x##row##6) ZERO_PAGE CHANGE(2, 5, action) \
    OP(0x##next##6)                               \
        ZERO_PAGE_INDEXED(x)                      \
        if (base < 0x80) goto other;              \
        CHANGE(2, 6, action)                      \
    OP(0x##row##e) ABSOLUTE CHANGE(3, 6, action)

#define BRANCH(opcode, taken)                                                      \
    OP(opcode)                                                                     \
        if (!(taken)) NEXT(2, 2)                                                   \
        base = pc + 2, at = base + (i32)(signed char)BYTE(1);                      \
        m = same_page(base, at) ? 3 : 4;                                           \
        if (BYTE(1) == 0xfb && (u32)at - first < size) {                           \
            i32 rounds = waits(code + at, t, 4 + m, a, nz), most = (left - 1) / 2; \
            if (rounds > most) rounds = most;                                      \
            t += rounds * (4 + m), left -= 2 * rounds;                             \
        }                                                                          \
        pc = at, t += m;                                                           \
        GO_ON

    // From the instruction at `pc` on, `left` at most; how many are left.
    CUDA_CALLABLE APART i32 fast(i32 left) {
        if (!(this->pc & 0x1000)) return left;
        // Where no bank is switched, and no RAM of the cartridge: data in [rom_first, rom_first + rom_size) of what the
        // processor sees, and code in [first, first + size), less what might reach beyond.
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
        const u8* code = rom + bank[this->pc >> 10 & 3] - (this->pc & 0xfc00);  // by the address

        i32 pc = this->pc, t = this->t, a = this->a, x = this->x, y = this->y, s = this->s, carry = this->carry;
        i32 nz = (nv & 0x80) << 1 | (zv != 0);  // N is bit 7 or bit 8, Z is set where bits 0-7 are 0
        i32 v = overflow << 7;                  // of which bit 7 is meant
        i32 at, base, bus, m, sum;
        if ((u32)pc - first >= size) goto other;
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
            ON_ACCUMULATOR(0, 1, nz = a |= m)
            ON_ACCUMULATOR(2, 3, nz = a &= m)
            ON_ACCUMULATOR(4, 5, nz = a ^= m)
            ON_ACCUMULATOR(6, 7, ADD(m))
            ON_ACCUMULATOR(a, b, nz = a = m)
            ON_ACCUMULATOR(c, d, COMPARE(a))
            ON_ACCUMULATOR(e, f, ADD(m ^ 0xff))
            // LDX, LDY, CPX, CPY, BIT
            OP(0xa2) nz = x = BYTE(1); NEXT(2, 2)
            OP(0xa6) ZERO_PAGE READ_ZERO_PAGE(nz = x = m)
            OP(0xb6) ZERO_PAGE_INDEXED(y) READ_ZERO_PAGE_INDEXED(nz = x = m)
            OP(0xae) ABSOLUTE READ(3, 4, nz = x = m)
            OP(0xbe) ABSOLUTE_INDEXED(y) READ_INDEXED(3, 4, nz = x = m)
            OP(0xa0) nz = y = BYTE(1); NEXT(2, 2)
            OP(0xa4) ZERO_PAGE READ_ZERO_PAGE(nz = y = m)
            OP(0xb4) ZERO_PAGE_INDEXED(x) READ_ZERO_PAGE_INDEXED(nz = y = m)
            OP(0xac) ABSOLUTE READ(3, 4, nz = y = m)
            OP(0xbc) ABSOLUTE_INDEXED(x) READ_INDEXED(3, 4, nz = y = m)
            OP(0xe0) m = BYTE(1); COMPARE(x); NEXT(2, 2)
            OP(0xe4) ZERO_PAGE READ_ZERO_PAGE(COMPARE(x))
            OP(0xc0) m = BYTE(1); COMPARE(y); NEXT(2, 2)
            OP(0xc4) ZERO_PAGE READ_ZERO_PAGE(COMPARE(y))
            OP(0x24) ZERO_PAGE READ_ZERO_PAGE(TEST)
            OP(0x2c) ABSOLUTE READ(3, 4, TEST)
            // stores
            OP(0x85) ZERO_PAGE WRITE(2, 3, a)
            OP(0x95) ZERO_PAGE_INDEXED(x) WRITE_ZERO_PAGE_INDEXED(a)
            OP(0x8d) ABSOLUTE WRITE(3, 4, a)
            OP(0x9d) ABSOLUTE_INDEXED(x) WRITE(3, 5, a)
            OP(0x99) ABSOLUTE_INDEXED(y) WRITE(3, 5, a)
            OP(0x91) INDIRECT_INDEXED WRITE(2, 6, a)
            OP(0x86) ZERO_PAGE WRITE(2, 3, x)
            OP(0x96) ZERO_PAGE_INDEXED(y) WRITE_ZERO_PAGE_INDEXED(x)
            OP(0x8e) ABSOLUTE WRITE(3, 4, x)
            OP(0x84) ZERO_PAGE WRITE(2, 3, y)
            OP(0x94) ZERO_PAGE_INDEXED(x) WRITE_ZERO_PAGE_INDEXED(y)
            OP(0x8c) ABSOLUTE WRITE(3, 4, y)
            // ASL, ROL, LSR, ROR, DEC, INC
            ON_MEMORY(0, 1, (carry = m >> 7, m = m << 1 & 0xff))
            ON_MEMORY(2, 3, (m = m << 1 | carry, carry = m >> 8, m &= 0xff))
            ON_MEMORY(4, 5, (carry = m & 1, m >>= 1))
            ON_MEMORY(6, 7, (m |= carry << 8, carry = m & 1, m >>= 1))
            ON_MEMORY(c, d, m = (m - 1) & 0xff)
            ON_MEMORY(e, f, m = (m + 1) & 0xff)
            OP(0x0a) carry = a >> 7, nz = a = a << 1 & 0xff; NEXT(1, 2)
            OP(0x2a) a = a << 1 | carry, carry = a >> 8, nz = a &= 0xff; NEXT(1, 2)
            OP(0x4a) carry = a & 1, nz = a >>= 1; NEXT(1, 2)
            OP(0x6a) a |= carry << 8, carry = a & 1, nz = a >>= 1; NEXT(1, 2)
            // registers
            OP(0xaa) nz = x = a; NEXT(1, 2)
            OP(0xa8) nz = y = a; NEXT(1, 2)
            OP(0x8a) nz = a = x; NEXT(1, 2)
            OP(0x98) nz = a = y; NEXT(1, 2)
            OP(0xba) nz = x = s; NEXT(1, 2)
            OP(0x9a) s = x; NEXT(1, 2)
            OP(0xe8) nz = x = (x + 1) & 0xff; NEXT(1, 2)
            OP(0xc8) nz = y = (y + 1) & 0xff; NEXT(1, 2)
            OP(0xca) nz = x = (x - 1) & 0xff; NEXT(1, 2)
            OP(0x88) nz = y = (y - 1) & 0xff; NEXT(1, 2)
            OP(0x18) carry = 0; NEXT(1, 2)
            OP(0x38) carry = 1; NEXT(1, 2)
            OP(0xd8) decimal = 0; NEXT(1, 2)
            OP(0xf8) decimal = 1; NEXT(1, 2)
            OP(0xea) NEXT(1, 2)
            // branches
            BRANCH(0x10, !(nz & 0x180))
            BRANCH(0x30, nz & 0x180)
            BRANCH(0x50, !(v & 0x80))
            BRANCH(0x70, v & 0x80)
            BRANCH(0x90, !carry)
            BRANCH(0xb0, carry)
            BRANCH(0xd0, nz & 0xff)
            BRANCH(0xf0, !(nz & 0xff))
            // jumps and the stack
            OP(0x4c)
                ABSOLUTE
                pc = at, t += 3;
                GO_ON
            OP(0x6c)
                ABSOLUTE
                base = (at & 0xff00) | ((at + 1) & 0xff);
                if (!in_ram(at) || !in_ram(base)) goto other;
                pc = ram[at & 0x7f] | ram[base & 0x7f] << 8, t += 5;
                GO_ON
            OP(0x20)
                if (s <= 0x80 || scheme == FE) goto other;
                ABSOLUTE
                ram[s & 0x7f] = (u8)((pc + 2) >> 8), ram[(s - 1) & 0x7f] = (u8)(pc + 2);
                s -= 2, pc = at, t += 6;
                GO_ON
            OP(0x60)
                if (s < 0x80 || s >= 0xfe || scheme == FE) goto other;
                m = ram[(s + 1) & 0x7f] | ram[(s + 2) & 0x7f] << 8;
                if ((u32)m - first >= size) goto other;
                s += 2, pc = m + 1, t += 6;
                GO_ON
            OP(0x48) PUSH(a)
            OP(0x08)
                m = 0x30 | decimal << 3 | interrupt << 2 | carry;
                m |= ((nz >> 1 | nz) & 0x80) | (v >> 1 & 0x40) | !(nz & 0xff) << 1;
                PUSH(m)
            OP(0x68)
                PULL
                nz = a = m;
                NEXT(1, 4)
            OP(0x28)
                PULL
                nz = (m & 0x80) << 1 | !(m & 2), v = m << 1, carry = m & 1;
                decimal = m >> 3 & 1, interrupt = m >> 2 & 1;
                NEXT(1, 4)
            // What is left to instruction(); all 256 are there.
            OP(0x00) OP(0x01) OP(0x02) OP(0x03) OP(0x04) OP(0x07) OP(0x0b) OP(0x0c) OP(0x0f)
            OP(0x12) OP(0x13) OP(0x14) OP(0x17) OP(0x1a) OP(0x1b) OP(0x1c) OP(0x1e) OP(0x1f)
            OP(0x21) OP(0x22) OP(0x23) OP(0x27) OP(0x2b) OP(0x2f) OP(0x32) OP(0x33) OP(0x34)
            OP(0x37) OP(0x3a) OP(0x3b) OP(0x3c) OP(0x3e) OP(0x3f) OP(0x40) OP(0x41) OP(0x42)
            OP(0x43) OP(0x44) OP(0x47) OP(0x4b) OP(0x4f) OP(0x52) OP(0x53) OP(0x54) OP(0x57)
            OP(0x58) OP(0x5a) OP(0x5b) OP(0x5c) OP(0x5e) OP(0x5f) OP(0x61) OP(0x62) OP(0x63)
            OP(0x64) OP(0x67) OP(0x6b) OP(0x6f) OP(0x72) OP(0x73) OP(0x74) OP(0x77) OP(0x78)
            OP(0x7a) OP(0x7b) OP(0x7c) OP(0x7e) OP(0x7f) OP(0x80) OP(0x81) OP(0x82) OP(0x83)
            OP(0x87) OP(0x89) OP(0x8b) OP(0x8f) OP(0x92) OP(0x93) OP(0x97) OP(0x9b) OP(0x9c)
            OP(0x9e) OP(0x9f) OP(0xa1) OP(0xa3) OP(0xa7) OP(0xab) OP(0xaf) OP(0xb2) OP(0xb3)
            OP(0xb7) OP(0xb8) OP(0xbb) OP(0xbf) OP(0xc1) OP(0xc2) OP(0xc3) OP(0xc7) OP(0xcb)
            OP(0xcc) OP(0xcf) OP(0xd2) OP(0xd3) OP(0xd4) OP(0xd7) OP(0xda) OP(0xdb) OP(0xdc)
            OP(0xde) OP(0xdf) OP(0xe1) OP(0xe2) OP(0xe3) OP(0xe7) OP(0xeb) OP(0xec) OP(0xef)
            OP(0xf2) OP(0xf3) OP(0xf4) OP(0xf7) OP(0xfa) OP(0xfb) OP(0xfc) OP(0xfe) OP(0xff)
                goto other;
        }
    leave:
        left--;
    other:
        this->pc = pc, this->t = t, this->a = a, this->x = x, this->y = y, this->s = s, this->carry = carry;
        overflow = v >> 7 & 1, nv = (nz & 0x180) != 0 ? 0x80 : 0, zv = nz & 0xff;
        return left;
    }
};

#undef OP
#undef NEXT_INSTRUCTION
#undef LABELS
#undef BYTE
#undef GO_ON
#undef NEXT
#undef ZERO_PAGE
#undef ZERO_PAGE_INDEXED
#undef ABSOLUTE
#undef ABSOLUTE_INDEXED
#undef INDIRECT_INDEXED
#undef READ
#undef READ_ZERO_PAGE
#undef READ_ZERO_PAGE_INDEXED
#undef READ_INDEXED
#undef WRITE
#undef WRITE_ZERO_PAGE_INDEXED
#undef PUSH
#undef PULL
#undef CHANGE
#undef ADD
#undef COMPARE
#undef TEST
#undef ON_ACCUMULATOR
#undef ON_MEMORY
#undef BRANCH
