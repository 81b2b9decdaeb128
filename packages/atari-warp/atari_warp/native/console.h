// Console: 6507 processor, 6532 RIOT (RAM, ports, timer), cartridge, and the bus between them. Cycles are those of the
// processor; `t` counts them from line 0 of the frame. A cycle is three colour clocks.

struct Console {
    enum { PLAIN, F8, F6, E0, FE, DPC };
    enum { CYCLES = 76, INSTRUCTIONS = 25000, LONGEST = 1 << 24, NEVER = 10000 };

    // Members that the host reads, in the order of FIELDS in consoles.py.
    u8 ram[128];
    u8 more_ram[128];  // of a Superchip
    i32 turn;          // index of the newest picture
    i32 frames;        // since the start of the game
    i32 score, lives, over;
    i32 t;             // cycles of the frame
    i32 pc, a, x, y, s;

    const u8* rom;
    u8* trace;  // for each byte of the ROM, the address at which it was executed as an instruction; or null
    i32 scheme, superchip;
    i32 bank[4];  // ROM offsets of the four quarters of the cartridge's address space

    i32 nv, zv;  // N is bit 7 of nv, Z is set where zv is 0
    i32 carry, overflow, decimal, interrupt;
    u32 before;  // cycles before the frame

    u8 swcha, swchb, inpt[6], swacnt;  // inpt: 128 not pressed, 0 pressed
    i32 resistance;  // of the paddle that is turned
    i32 paddle[4];   // cycles until each capacitor is charged; negative: not connected
    u32 dumped_at;
    i32 dumping;
    u32 timer_at;
    i32 timer_value, timer_shift, timer_latched, timer_offset;

    i32 watched;   // value of a byte one frame ago, for games whose lives or end depend on its change
    i32 instead;   // second score, for games that count in two ways
    i32 fell;      // the score fell in the last frame
    i32 paid;      // points of the last frame
    i32 lasted;    // consecutive frames that met a condition of game over
    i32 kept;      // lives do not change yet
    i32 par;       // of a hole, in golf
    i32 strokes;   // counted in this hole
    i32 shown;     // strokes of all holes, as last displayed
    i32 touched;   // clock of the last access to the TIA: an abandoned frame is visible up to there
    i32 armed;     // VSYNC is set,
    u32 armed_at;  // since this clock
    i32 boots;     // resets of the processor
    i32 ended;     // the frame has ended, and the next one starts with its own line 0
    i32 pal;       // PAL televisions take colours from the phase of lines, which an odd number of lines loses
    i32 limit;     // cycle after which any write to the TIA ends the frame
    Tia tia;
    Dpc dpc;

    CUDA_CALLABLE u32 now() const { return before + (u32)t; }

    // Reset the processor; `timer` is the first value of the RIOT's timer.
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

    // Switch banks, if the address that is read or written is a switch.
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

    // Read the byte at `address` at the end of this cycle; `bus` is the last byte on the data bus.
    CUDA_CALLABLE APART i32 read(i32 address, i32 bus) {
        if (address & 0x1000) {
            if (scheme != PLAIN) {
                touch(address);
                if (scheme == DPC && Dpc::notices(address & 0xfff)) {
                    dpc.shift();
                    if ((address & 0xfff) < 0x40) return dpc.read(address & 0x3f, rom + 2 * 4096);
                }
                // The write port reads as the ROM below it.
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
            default: return 0;  // SWBCNT, which ALE does not store
        }
        // A game that never writes the timer exceeds 31 bits after a hundred thousand frames.
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

    // Level of a paddle's input at the end of cycle `end`.
    CUDA_CALLABLE i32 charge(i32 k, i32 end) const {
        i32 after = paddle[k];
        if (after < 0) return 0;
        if (after == 0) return dumping ? 0 : 0x80;
        // A capacitor charged before this frame counts as never charged, as in ALE.
        i32 charged_at = (i32)(dumped_at - before) + after;
        return !dumping && charged_at >= 0 && end > charged_at ? 0x80 : 0;
    }

    CUDA_CALLABLE void wait_for_line() {
        i32 rest = t % CYCLES;
        if (rest) t += CYCLES - rest;
    }

    CUDA_CALLABLE void write_tia(i32 reg, i32 value) {
        access_tia(t);
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

    // Play until the frame ends, or for the maximum number of instructions.
    CUDA_CALLABLE void frame(i32 first_line, i32 rows, u8* picture) {
        if (ended) {
            ended = 0;
            tia.begin(first_line, rows, picture);
            touched = 0;
        }
        tia.picture = picture;
        tia.anew = 1;  // a frame may continue in another picture, or with other visible rows
        run();
        tia.draw_until(touched);
        tia.fill_up();
        if (t > LONGEST) ended = 1;  // a program that never writes to the TIA would overflow the clock
        if (!ended) return;
        i32 gone = t - t % CYCLES;
        tia.picture = nullptr;  // the rest of the last line keeps its pixels
        tia.draw_until(3 * gone);
        tia.moved_at = tia.moved_at < -NEVER ? -NEVER : tia.moved_at - 3 * gone;
        if (pal) tia.parity = gone / CYCLES & 1;
        before += gone;
        t -= gone;
    }

    // Whether the frame has ended, and all rows of the picture were drawn.
    CUDA_CALLABLE bool whole() const { return ended && tia.row >= tia.height; }
