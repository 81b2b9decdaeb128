// The television interface adaptor: registers, objects, collisions and picture.
// Times are colour clocks: a line has 228, of which the last 160 are seen; h counts those of a line, x = h - 68.

struct Tia {
    enum { P0, P1, M0, M1, BL, OBJECTS };
    enum { LINE = 228, BLANK = 68, WIDTH = 160 };

    i32 done;        // clock of the frame up to which all is drawn, a multiple of LINE added for each line
    i32 row;         // of the picture, of the line that `done` is in; negative above it
    i32 height;      // rows of the picture
    u8* picture;     // (height, 160) colours of the frame, or null if nobody will see it
    u8 colors[4];    // of player 0, player 1, playfield and ball, background
    u8 pf[3], ctrlpf, reflected, reflect_next;
    u8 nusiz[2], grp[2], grp_old[2], refp[2], vdel[2];
    u8 enam[2], resmp[2], enabl, enabl_old, vdelbl;
    u8 motion[OBJECTS];  // high nibble of HMxx
    u8 vblank, comb, comb_next, no_comb, parity;
    u8 hidden[2];        // the first copy of a player is not drawn in this line
    u8 hold_until[2], held_at[2];  // until this pixel a player is drawn where it was
    u8 position[OBJECTS];
    i32 pulses[OBJECTS];  // movements left that follow at the end of this line
    u16 hits;            // collisions: bits 2k + 1, 2k are D7, D6 of the register k
    u8 stale;            // objects (bit), whose pixels are to be computed anew; bit 5: the playfield
    u8 present;          // objects that have pixels in this line
    u8 star;             // phase of a line of missile 0's stars, from 1; 0: it draws none
    i32 moved_at;        // clock of the last HMOVE
    Pixels seen[OBJECTS + 1];  // pixels of each object, and of the playfield

    enum { PF = OBJECTS, ALL = 63 };

    CUDA_CALLABLE void reset() {
        for (i32 k = 0; k < 4; k++) colors[k] = 0;
        for (i32 k = 0; k < 3; k++) pf[k] = 0;
        ctrlpf = reflected = reflect_next = 0;
        for (i32 k = 0; k < 2; k++)
            nusiz[k] = grp[k] = grp_old[k] = refp[k] = vdel[k] = enam[k] = resmp[k] = hidden[k] = hold_until[k] =
                held_at[k] = 0;
        enabl = enabl_old = vdelbl = 0;
        for (i32 k = 0; k < OBJECTS; k++) motion[k] = position[k] = 0, pulses[k] = 0;
        vblank = comb = comb_next = 0;
        hits = 0;
        star = 0;
        moved_at = -10000;
        stale = ALL;
    }

    // A frame begins: its line 0 is where the clock is.
    CUDA_CALLABLE void begin(i32 first_line, i32 rows, u8* to) {
        row = -first_line;
        height = rows;
        picture = to;
        done = 0;
    }

    CUDA_CALLABLE bool displayed() const { return row >= 0 && row < height; }

    // Draw everything before `clock`.
    CUDA_CALLABLE APART void draw_until(i32 clock) {
        while (done < clock) {
            i32 line = done - done % LINE, begin = done - line - BLANK, end = clock - line - BLANK;
            if (end > WIDTH) end = WIDTH;
            if (begin < 0) begin = 0;
            if (end > begin && displayed()) segment(begin, end);
            if (end < WIDTH) {
                done = clock;
                return;
            }
            done = line + LINE;
            end_line();
        }
    }

    CUDA_CALLABLE void end_line() {
        if (displayed()) comb = hidden[0] = hidden[1] = 0, stale |= 1 << P0 | 1 << P1;
        row++;
        if (comb_next) comb = 1, comb_next = 0;
        for (i32 k = 0; k < 2; k++)
            if (hold_until[k]) hold_until[k] = 0, stale |= 1 << k;
        if (reflected != reflect_next) reflected = reflect_next, stale |= 1 << PF;
        for (i32 k = 0; k < OBJECTS; k++)
            if (pulses[k]) move(k, pulses[k]), pulses[k] = 0;
        if (star) end_line_of_star();
    }

    CUDA_CALLABLE void move(i32 object, i32 left) {
        position[object] = (u8)((position[object] - left + 2 * WIDTH) % WIDTH);
        stale |= 1 << object;
    }

    CUDA_CALLABLE void end_line_of_star() {
        move(M0, 17);
        star = star % 4 + 1;
    }

    // --- what is where -------------------------------------------------------------------------------------------

    static CUDA_CALLABLE i32 copies(i32 nusiz) { return nusiz == 3 || nusiz == 6 ? 3 : nusiz == 1 || nusiz == 2 || nusiz == 4 ? 2 : 1; }
    static CUDA_CALLABLE i32 spacing(i32 nusiz) { return nusiz == 4 ? 64 : nusiz == 2 || nusiz == 6 ? 32 : 16; }
    static CUDA_CALLABLE i32 scale(i32 nusiz) { return nusiz == 5 ? 2 : nusiz == 7 ? 4 : 1; }

    CUDA_CALLABLE void player(i32 k, i32 at, bool first_too, Pixels& pixels) const {
        u32 graphic = vdel[k] ? grp_old[k] : grp[k];
        if (!graphic) return;
        if (!refp[k]) graphic = Bits::reversed(graphic);
        i32 size = nusiz[k] & 7, wide = scale(size);
        if (wide == 2) graphic = Bits::doubled(graphic);
        if (wide == 4) graphic = Bits::fourfold(graphic);
        for (i32 c = first_too ? 0 : 1; c < copies(size); c++)
            pixels.put(graphic, at + (wide > 1) + c * spacing(size));
    }

    CUDA_CALLABLE void renew() {
        for (i32 k = 0; k < 2; k++) {
            if (stale >> k & 1) {
                seen[k].clear();
                player(k, position[k], !hidden[k], seen[k]);
                if (hold_until[k]) {
                    Pixels before, old = Pixels::range(0, hold_until[k]), now = Pixels::range(hold_until[k], WIDTH);
                    before.clear();
                    player(k, held_at[k], true, before);
                    before = before.both(old);
                    seen[k] = seen[k].both(now);
                    seen[k].w0 |= before.w0, seen[k].w1 |= before.w1, seen[k].w2 |= before.w2;
                }
            }
            i32 m = M0 + k;
            if (stale >> m & 1) {
                seen[m].clear();
                if (enam[k] && !resmp[k]) {
                    i32 size = nusiz[k] & 7, wide = 1 << (nusiz[k] >> 4 & 3), at = position[m];
                    if (k == 0 && star) {
                        if (star == 2) at += WIDTH - 16, wide = wide < 4 ? 2 : 8;
                        if (star == 4) at += 1;
                    }
                    if (k || star != 3)
                        for (i32 c = 0; c < copies(size); c++)
                            seen[m].put((1ull << wide) - 1, (at + c * spacing(size)) % WIDTH);
                }
            }
        }
        if (stale >> BL & 1) {
            seen[BL].clear();
            if (vdelbl ? enabl_old : enabl) seen[BL].put((1ull << (1 << (ctrlpf >> 4 & 3))) - 1, position[BL]);
        }
        if (stale >> PF & 1) {
            seen[PF].clear();
            if (pf[0] >> 4 | pf[1] | pf[2]) {
                u32 a = Bits::fourfold(pf[0] >> 4), b = Bits::fourfold(Bits::reversed(pf[1])), c = Bits::fourfold(pf[2]);
                seen[PF].put(a, 0);
                seen[PF].put(b, 16);
                seen[PF].put(c, 48);
                if (reflected) {
                    seen[PF].put(Bits::fourfold(Bits::reversed(pf[2])), 80);
                    seen[PF].put(Bits::fourfold(pf[1]), 112);
                    seen[PF].put(Bits::fourfold(Bits::reversed(pf[0] & 0xf0)), 144);
                } else {
                    seen[PF].put(a, 80);
                    seen[PF].put(b, 96);
                    seen[PF].put(c, 128);
                }
            }
        }
        for (i32 k = 0; k <= PF; k++)
            if (stale >> k & 1) present = (u8)((present & ~(1 << k)) | seen[k].any() << k);
        stale = 0;
    }

    // --- pixels begin..end - 1 of a displayed line ---------------------------------------------------------------

    CUDA_CALLABLE void segment(i32 begin, i32 end) {
        if (vblank & 2) {
            if (picture) fill(begin, end, 0);
            return;
        }
        if (stale) renew();
        collide(begin, end);
        if (picture) paint(begin, end);
    }

    CUDA_CALLABLE void collide(i32 begin, i32 end) {
        if (!(present & (present - 1))) return;
        u16 possible = 0;
        for (i32 pair = 0; pair < 15; pair++) {
            i32 a, b, bit;
            of_pair(pair, a, b, bit);
            if (present >> a & present >> b & 1) possible |= 1 << bit;
        }
        possible &= ~hits;
        if (!possible) return;
        Pixels here = Pixels::range(begin, end);
        for (i32 pair = 0; pair < 15; pair++) {
            i32 a, b, bit;
            of_pair(pair, a, b, bit);
            if (possible >> bit & 1 && seen[a].both(here).meets(seen[b])) hits |= 1 << bit;
        }
    }

    static CUDA_CALLABLE void of_pair(i32 pair, i32& a, i32& b, i32& bit) {
        switch (pair) {
            case 0: a = M0, b = P1, bit = 1; break;
            case 1: a = M0, b = P0, bit = 0; break;
            case 2: a = M1, b = P0, bit = 3; break;
            case 3: a = M1, b = P1, bit = 2; break;
            case 4: a = P0, b = PF, bit = 5; break;
            case 5: a = P0, b = BL, bit = 4; break;
            case 6: a = P1, b = PF, bit = 7; break;
            case 7: a = P1, b = BL, bit = 6; break;
            case 8: a = M0, b = PF, bit = 9; break;
            case 9: a = M0, b = BL, bit = 8; break;
            case 10: a = M1, b = PF, bit = 11; break;
            case 11: a = M1, b = BL, bit = 10; break;
            case 12: a = BL, b = PF, bit = 13; break;
            case 13: a = P0, b = P1, bit = 15; break;
            default: a = M0, b = M1, bit = 14; break;
        }
    }

    CUDA_CALLABLE void fill(i32 begin, i32 end, u8 color) {
        u8* line = picture + row * WIDTH;
        for (i32 x = begin; x < end; x++) line[x] = color;
    }

    CUDA_CALLABLE void paint_word(u64 word, i32 offset, u8 color) {
        while (word) {
            i32 begin = Bits::lowest(word);
            u64 rest = ~(word >> begin);
            i32 end = rest ? begin + Bits::lowest(rest) : 64;
            fill(offset + begin, offset + end, color);
            word = end >= 64 ? 0 : word & ~0ull << end;
        }
    }

    CUDA_CALLABLE void paint_object(i32 object, const Pixels& here, u8 color) {
        if (!(present >> object & 1)) return;
        Pixels pixels = seen[object].both(here);
        paint_word(pixels.w0, 0, color);
        paint_word(pixels.w1, 64, color);
        paint_word(pixels.w2, 128, color);
    }

    CUDA_CALLABLE u8 color(i32 k) const { return colors[k] | parity; }

    CUDA_CALLABLE void paint(i32 begin, i32 end) {
        if (comb && begin < 8) {
            fill(begin, end < 8 ? end : 8, 0);
            if (end <= 8) return;
            begin = 8;
        }
        fill(begin, end, color(3));
        if (!present) return;
        Pixels here = Pixels::range(begin, end);
        bool in_front = ctrlpf & 4;
        if (!in_front) playfield(here);
        paint_object(P1, here, color(1));
        paint_object(M1, here, color(1));
        paint_object(P0, here, color(0));
        paint_object(M0, here, color(0));
        if (in_front) playfield(here);
    }

    CUDA_CALLABLE void playfield(const Pixels& here) {
        if (ctrlpf & 2 && !(ctrlpf & 4)) {
            paint_object(PF, here.both(Pixels::range(0, 80)), color(0));
            paint_object(PF, here.both(Pixels::range(80, 160)), color(1));
        } else
            paint_object(PF, here, color(2));
        paint_object(BL, here, color(2));
    }

    // --- registers -----------------------------------------------------------------------------------------------

    // The register `reg` gets `value` at `clock` of the frame (at the end of the writing cycle).
    CUDA_CALLABLE APART void write(i32 reg, u8 value, i32 clock) {
        i32 h = clock % LINE, x = h - BLANK, k;
        switch (reg) {
            case 0x01:  // VBLANK
                draw_until(clock + 1);
                vblank = value;
                break;
            case 0x04: case 0x05:  // NUSIZ0, NUSIZ1
                k = reg - 0x04;
                if (nusiz[k] == value) break;
                draw_until(clock + 8);
                nusiz[k] = value;
                stale |= 1 << k | 4 << k;
                break;
            case 0x06: case 0x07: case 0x08: case 0x09:  // COLUP0, COLUP1, COLUPF, COLUBK
                value &= 0xfe;
                if (colors[reg - 0x06] == value) break;
                draw_until(clock);
                colors[reg - 0x06] = value;
                break;
            case 0x0a:  // CTRLPF
                draw_until(clock);
                reflect_next = value & 1;
                if (x < 79 && reflected != reflect_next) reflected = reflect_next, stale |= 1 << PF;
                if (ctrlpf != value) stale |= 1 << BL;
                ctrlpf = value;
                break;
            case 0x0b: case 0x0c:  // REFP0, REFP1
                k = reg - 0x0b;
                value &= 8;
                if (refp[k] == value) break;
                draw_until(clock + 1);
                refp[k] = value;
                stale |= 1 << k;
                break;
            case 0x0d: case 0x0e: case 0x0f:  // PF0, PF1, PF2
                if (pf[reg - 0x0d] == value) break;
                k = h / 3 & 3;
                draw_until(clock + (k == 0 ? 4 : k == 1 ? 5 : k == 2 ? 2 : 3));
                pf[reg - 0x0d] = value;
                stale |= 1 << PF;
                break;
            case 0x10: case 0x11:  // RESP0, RESP1
                reset_player(reg - 0x10, clock, x);
                break;
            case 0x12: case 0x13:  // RESM0, RESM1
                draw_until(clock + 8);
                position[M0 + reg - 0x12] = (u8)(x < 0 ? missile_in_motion(reg - 0x12, clock, h) : (x + 4) % WIDTH);
                stale |= 4 << (reg - 0x12);
                break;
            case 0x14:  // RESBL
                draw_until(clock);
                position[BL] = (u8)(x < 0 ? ball_in_motion(clock, h) : (x + 4) % WIDTH);
                stale |= 1 << BL;
                break;
            case 0x1b: case 0x1c:  // GRP0, GRP1
                k = reg - 0x1b;
                draw_until(clock + 1);
                if (grp[k] != value) grp[k] = value, stale |= 1 << k;
                if (grp_old[1 - k] != grp[1 - k]) grp_old[1 - k] = grp[1 - k], stale |= 2 >> k;
                if (k && enabl_old != enabl) enabl_old = enabl, stale |= 1 << BL;
                break;
            case 0x1d: case 0x1e:  // ENAM0, ENAM1
                k = reg - 0x1d;
                value &= 2;
                if (enam[k] == value) break;
                draw_until(clock);
                enam[k] = value;
                stale |= 4 << k;
                break;
            case 0x1f:  // ENABL
                value &= 2;
                if (enabl == value) break;
                draw_until(clock);
                enabl = value;
                stale |= 1 << BL;
                break;
            case 0x20: case 0x21: case 0x22: case 0x23: case 0x24:  // HMP0, HMP1, HMM0, HMM1, HMBL
                set_motion(reg - 0x20, value >> 4, clock);
                break;
            case 0x25: case 0x26:  // VDELP0, VDELP1
                k = reg - 0x25;
                value &= 1;
                if (vdel[k] == value) break;
                draw_until(clock);
                vdel[k] = value;
                stale |= 1 << k;
                break;
            case 0x27:  // VDELBL
                draw_until(clock);
                vdelbl = value & 1;
                stale |= 1 << BL;
                break;
            case 0x28: case 0x29:  // RESMP0, RESMP1
                k = reg - 0x28;
                value &= 2;
                if (resmp[k] == value) break;
                draw_until(clock);
                if (!value) {
                    i32 wide = scale(nusiz[k] & 7);
                    position[M0 + k] = (u8)((position[k] + (wide == 1 ? 4 : wide == 2 ? 8 : 16)) % WIDTH);
                }
                resmp[k] = value;
                stale |= 4 << k;
                break;
            case 0x2a:  // HMOVE
                start_motion(clock, h);
                break;
            case 0x2b:  // HMCLR
                for (i32 object = 0; object < OBJECTS; object++) set_motion(object, 0, clock);
                break;
            case 0x2c:  // CXCLR
                draw_until(clock);
                hits = 0;
                break;
        }
    }

    // Where a missile or the ball comes to stand that is reset in the blank part of a line: 2, or elsewhere if an
    // HMOVE has begun at cycle 3 of the line.
    CUDA_CALLABLE i32 ball_in_motion(i32 clock, i32 h) const {
        if (clock - h + 9 != moved_at) return 2;
        return h == 18 ? 3 : h == 27 ? 5 : h == 30 ? 6 : 2;
    }

    CUDA_CALLABLE i32 missile_in_motion(i32 k, i32 clock, i32 h) const {
        if (clock - h + 9 != moved_at) return 2;
        return k == 0 && h == 69 ? 8 : k == 1 && h == 18 ? 3 : 2;
    }

    CUDA_CALLABLE void reset_player(i32 k, i32 clock, i32 x) {
        i32 at = x < 0 ? 3 : (x + 5) % WIDTH, beam = x < 0 ? -2 : x;
        i32 size = nusiz[k] & 7, wide = scale(size);
        bool first = false, holds = false;
        for (i32 c = 0; c < copies(size); c++) {
            i32 start = position[k] + (wide > 1) + c * spacing(size), d = (beam - start + 3 * WIDTH) % WIDTH;
            if (d >= WIDTH - 5 && d <= WIDTH - 2) first = true;
            else if (d == WIDTH - 1 || d <= 8 * wide - 2) holds = true;
        }
        draw_until(clock);
        stale |= 1 << k;
        hidden[k] = !first;
        hold_until[k] = 0;
        if (!first && holds && x + 11 > 0) {
            held_at[k] = position[k];
            hold_until[k] = (u8)(x + 11 < WIDTH ? x + 11 : WIDTH);
        }
        position[k] = (u8)at;
    }

    CUDA_CALLABLE void set_motion(i32 object, u8 value, i32 clock) {
        if (object == M0 && (star || motion[M0] == 7)) {
            draw_until(clock);
            if (motion[M0] == 7 && value == 6 && clock - moved_at == 63 && moved_at % LINE == 9) {
                star = 1;
                stale |= 1 << M0;
            } else if (star)
                star = 0, stale |= 1 << M0;
        }
        motion[object] = value;
    }

    CUDA_CALLABLE void start_motion(i32 clock, i32 h) {
        draw_until(clock);
        moved_at = clock;
        i32 first = 4 * ((h + 1) / 4) + 8;
        bool longer = h <= 60, longer_next = h >= 225;  // the blank part of this line, or of the next, by 8 clocks
        if (longer && !no_comb) comb = 1;
        if (longer_next && !no_comb) comb_next = 1;
        for (i32 object = 0; object < OBJECTS; object++) {
            i32 count = motion[object] ^ 8, left = longer ? -8 : 0, later = longer_next ? -8 : 0;
            for (i32 i = 0; i < count; i++) {
                i32 pulse = first + 4 * i;
                if (pulse < BLANK + (longer ? 8 : 0)) left++;
                else if (pulse >= LINE && pulse < LINE + BLANK + (longer_next ? 8 : 0)) later++;
            }
            if (left) move(object, left);
            pulses[object] = later;
        }
    }
};
