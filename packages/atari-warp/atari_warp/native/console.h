// The console: 6507 processor, 6532 RIOT (RAM, ports, timer), cartridge, and the bus between them.
// Cycles are the processor's; `t` counts those of the frame, since its line 0 began; three colour clocks each.

struct Console {
    enum { PLAIN, F8, F6, E0, FE, DPC };
    enum { CYCLES = 76, INSTRUCTIONS = 25000, LONGEST = 1 << 24, NEVER = 10000 };

    // First, and in this order, what others read: see FIELDS in emulator.py.
    u8 ram[128];
    u8 more_ram[128];  // Superchip's
    i32 turn;          // which of the two pictures is the newest
    i32 frames;        // since the game started
    i32 score, lives, over;
    i32 t;             // cycles of the frame
    i32 pc, a, x, y, s;

    const u8* rom;
    u8* trace;  // of each byte of the ROM, the address at which the processor found an instruction there; or null
    i32 scheme, superchip;
    i32 bank[4];  // offsets of the four quarters of what the processor sees of the ROM

    i32 nv, zv;  // N is bit 7 of the one, Z is set where the other is 0
    i32 carry, overflow, decimal, interrupt;
    u32 before;  // cycles before the frame

    u8 swcha, swchb, inpt[6], swacnt;  // inpt: 128 not pressed, 0 pressed
    i32 resistance;  // of the paddle that is turned
    i32 paddle[4];   // cycles until each is charged; negative: not connected
    u32 dumped_at;
    i32 dumping;
    u32 timer_at;
    i32 timer_value, timer_shift, timer_latched, timer_offset;

    i32 watched;   // a byte of the memory as it was a frame ago, for a game whose lives or end show in its change
    i32 instead;   // a second score, for a game that counts in two ways
    i32 fell;      // the score fell in the last frame
    i32 paid;      // points of it
    i32 lasted;    // frames in a row, the last one among them, that were ends
    i32 kept;      // lives stay as they are until something
    i32 par;       // of a hole, for golf
    i32 strokes;   // that are counted in it
    i32 shown;     // the strokes of all holes, as they were last shown
    i32 touched;   // clock of the last access to the TIA: what is seen of a frame that is given up ends there
    i32 armed;     // VSYNC is set,
    u32 armed_at;  // since then
    i32 boots;     // resets of the processor
    i32 ended;     // the frame has ended, and the next starts at a line of its own
    i32 pal;       // the television shows colours by the phase of lines, which an odd number of them loses
    i32 limit;     // a line after which any write to the TIA ends the frame
    Tia tia;
    Dpc dpc;

    CUDA_CALLABLE u32 now() const { return before + (u32)t; }

    // What the reset button of the processor does; the RIOT's timer starts with `timer`.
    CUDA_CALLABLE void reset(i32 timer) {
        a = x = y = 0;
        s = 0xff;
        nv = 0, zv = 1, carry = overflow = decimal = interrupt = 0;
        tia.reset();
        swacnt = 0;
        dumping = 0;
        dumped_at = 0;
        before = 0;
        t = 0;
        timer_at = 0, timer_value = timer, timer_shift = 6, timer_latched = 0;
        armed = 0;
        ended = 1;
        i32 last = scheme == F8 || scheme == DPC ? 4096 : 0;
        for (i32 k = 0; k < 4; k++) bank[k] = scheme == E0 ? 1024 * (4 + k) : last + 1024 * k;
        pc = read(0x1ffc, 0) | read(0x1ffd, 0) << 8;
    }

    // --- bus -----------------------------------------------------------------------------------------------------

    CUDA_CALLABLE i32 cartridge(i32 address) const { return rom[bank[address >> 10 & 3] + (address & 1023)]; }

    // Switch banks, if the address that is read or written asks for it.
    CUDA_CALLABLE void touch(i32 address) {
        i32 low = address & 0xfff;
        if (scheme == F8 || scheme == DPC) {
            if (low == 0xff8 || low == 0xff9) choose(low - 0xff8);
        } else if (scheme == F6) {
            if (low >= 0xff6 && low <= 0xff9) choose(low - 0xff6);
        } else if (scheme == E0 && low >= 0xfe0 && low < 0xff8)
            bank[(low - 0xfe0) >> 3] = 1024 * (low & 7);
    }

    CUDA_CALLABLE void choose(i32 number) {
        for (i32 k = 0; k < 4; k++) bank[k] = 4096 * number + 1024 * k;
    }

    // The byte at `address` at the end of this cycle; `bus`: the last byte that was on the data bus.
    CUDA_CALLABLE APART i32 read(i32 address, i32 bus) {
        if (address & 0x1000) {
            if (scheme != PLAIN) {
                touch(address);
                if (scheme == DPC && Dpc::notices(address & 0xfff)) {
                    dpc.shift();
                    if ((address & 0xfff) < 0x40) return dpc.read(address & 0x3f, rom + 2 * 4096);
                }
                // Its port for writing reads as the ROM below it.
                if (superchip && (address & 0xf80) == 0x80) return more_ram[address & 0x7f];
            }
            return cartridge(address);
        }
        if (address & 0x80) {
            if (address & 0x200) return read_riot(address);
            return ram[address & 0x7f];
        }
        return read_tia(address & 0xf) | (bus & 0x3f);
    }

    CUDA_CALLABLE APART void write(i32 address, i32 value) {
        if (address & 0x1000) {
            if (scheme != PLAIN) {
                touch(address);
                if (scheme == DPC) {
                    dpc.shift();
                    if ((address & 0xfc0) == 0x40) dpc.write(address & 0x7f, value);
                }
                if (superchip && (address & 0xfff) < 0x80) more_ram[address & 0x7f] = (u8)value;
            }
        } else if (address & 0x80) {
            if (address & 0x200) write_riot(address, value);
            else ram[address & 0x7f] = (u8)value;
        } else
            write_tia(address & 0x3f, value);
    }

    CUDA_CALLABLE i32 read_riot(i32 address) {
        if (!(address & 4)) switch (address & 3) {
            case 0: return swcha;
            case 1: return swacnt;
            case 2: return swchb;
            default: return 0;  // SWBCNT, which ALE does not keep
        }
        // After a hundred thousand frames of a game that never writes it, 31 bits would not hold them.
        const i64 since = (i64)(u32)(now() - timer_at) - 1, value = timer_value - (since >> timer_shift) - 1;
        if (address & 1) return value < 0 && !timer_latched ? 0x80 : 0;
        if (value >= 0) return (i32)(value & 0xff);
        if (!timer_latched) {
            const i64 offset = (timer_value << timer_shift) - since;
            timer_offset = (i32)offset;
            if (offset < 0) timer_latched = 1;
        }
        return (i32)((value + timer_offset) & 0xff);
    }

    CUDA_CALLABLE void write_riot(i32 address, i32 value) {
        if (address & 4) {
            if (!(address & 16)) return;
            i32 scale = address & 3;
            timer_shift = scale == 0 ? 0 : scale == 1 ? 3 : scale == 2 ? 6 : 10;
            timer_at = now(), timer_value = value, timer_latched = 0;
        } else if ((address & 3) == 1)
            swacnt = (u8)value;
    }

    CUDA_CALLABLE i32 read_tia(i32 reg) {
        touched = 3 * t;
        if (reg < 8) {
            tia.draw_until(3 * t);
            return (tia.hits >> 2 * reg & 3) << 6;
        }
        if (reg >= 14) return 0;
        if (reg >= 12) return inpt[reg - 8];
        return charge(reg - 8, t);
    }

    // Of a paddle, at the end of the cycle `end`.
    CUDA_CALLABLE i32 charge(i32 k, i32 end) const {
        i32 after = paddle[k];
        if (after < 0) return 0;
        if (after == 0) return dumping ? 0 : 0x80;
        // One that would have been charged before this frame began is taken for one that never is.
        i32 charged_at = (i32)(dumped_at - before) + after;
        return !dumping && charged_at >= 0 && end > charged_at ? 0x80 : 0;
    }

    CUDA_CALLABLE void wait_for_line() {
        i32 rest = t % CYCLES;
        if (rest) t += CYCLES - rest;
    }

    CUDA_CALLABLE void write_tia(i32 reg, i32 value) {
        touched = 3 * t;
        if (t >= CYCLES * (limit + 1)) ended = 1;
        if (reg >= 3) {
            if (reg != 3) tia.write(reg, (u8)value, 3 * t);
        } else if (reg == 2) {  // WSYNC
            wait_for_line();
        } else if (reg == 1) {
            if (dumping && !(value & 0x80)) dumped_at = now();
            dumping = value >> 7;
            tia.write(reg, (u8)value, 3 * t);
        } else {  // VSYNC
            if (value & 2) armed = 1, armed_at = now();
            else if (armed && now() - armed_at >= CYCLES)
                ended = 1, armed = 0;
        }
    }

    // --- a frame -------------------------------------------------------------------------------------------------

    // Play until the frame ends, or for as many instructions as a frame may have.
    CUDA_CALLABLE void frame(i32 first_line, i32 rows, u8* picture) {
        if (ended) {
            ended = 0;
            tia.begin(first_line, rows, picture);
            touched = 0;
        }
        tia.picture = picture;
        tia.anew = 1;  // also where a frame goes on that had not ended: in another picture, or seen from another row on
        run();
        tia.draw_until(touched);
        tia.fill_up();
        if (t > LONGEST) ended = 1;  // of a program that never writes to the TIA: before the clock overflows
        if (!ended) return;
        i32 gone = t - t % CYCLES;
        tia.picture = nullptr;  // what is left of the last line stays as it was
        tia.draw_until(3 * gone);
        tia.moved_at = tia.moved_at < -NEVER ? -NEVER : tia.moved_at - 3 * gone;
        if (pal) tia.parity = gone / CYCLES & 1;
        before += gone;
        t -= gone;
    }

    // The frame has ended, and not before all rows of the picture were there.
    CUDA_CALLABLE bool whole() const { return ended && tia.row >= tia.height; }
