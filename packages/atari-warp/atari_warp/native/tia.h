// The television interface adaptor: registers, objects, collisions and picture.
// Times are colour clocks: a line has 228, of which the last 160 are seen; h counts those of a line, x = h - 68.

struct Tia {
    enum { P0, P1, M0, M1, BL, OBJECTS };
    enum { LINE = 228, BLANK = 68, WIDTH = 160, SIDE = Paint::SIDE };

    i32 begun;       // clock of the frame where drawing began last,
    i32 done;        // that up to which all is drawn,
    i32 line;        // and of the beginning of the line that it is in
    i32 row;         // of the picture, of the line that `done` is in; negative above it
    i32 height;      // rows of the picture
    u8* picture;     // (height, 160) colours of the frame, or null if nobody will see it
    i32 top, bottom; // the first row that anybody will see, and that after the last
    u8 colors[4];    // of player 0, player 1, playfield and ball, background
    u8 pf[3], ctrlpf, reflected, reflect_next;
    u8 nusiz[2], grp[2], grp_old[2], refp[2], vdel[2];
    u8 enam[2], resmp[2], enabl, enabl_old, vdelbl;
    u8 motion[OBJECTS];  // high nibble of HMxx
    u8 vblank, comb, comb_next, no_comb, parity;
    u8 ends;             // something is to be done at the end of this line
    u8 hidden[2];        // the first copy of a player is not drawn in this line
    u8 position[OBJECTS];
    u8 last[64];         // what was written last to each register
    u16 hits;            // collisions: bits 2k + 1, 2k are D7, D6 of the register k
    u8 stale;            // objects (bit), whose pixels are to be computed anew; bit 5: the playfield,
                         // 6: something has changed since may_meet() was asked
    u8 anew;             // a line may look otherwise than the one above it, if that was painted at all
    u8 present;          // objects that have pixels in this line
    u16 meet;            // collisions, numbered as in hits, that this line has somewhere and hits has not
    u8 star;             // phase of a line of missile 0's stars, from 1; 0: it draws none
    u8 star_drawn;       // the same, or 0 where missile 0 is drawn as usual in this line
    i32 moved_at;        // clock of the last HMOVE
    Pixels seen[OBJECTS + 1];  // pixels of each object, and of the playfield

    enum { PF = OBJECTS, EACH = 63, CHANGED = 64, ALL = 127, WITH_PF = 0x2aa0 };

    CUDA_CALLABLE void reset() {
        for (i32 k = 0; k < 64; k++) last[k] = 0;
        for (i32 k = 0; k < 4; k++) colors[k] = 0;
        for (i32 k = 0; k < 3; k++) pf[k] = 0;
        ctrlpf = reflected = reflect_next = 0;
        for (i32 k = 0; k < 2; k++)
            nusiz[k] = grp[k] = grp_old[k] = refp[k] = vdel[k] = enam[k] = resmp[k] = hidden[k] = 0;
        enabl = enabl_old = vdelbl = 0;
        for (i32 k = 0; k < OBJECTS; k++) motion[k] = position[k] = 0;
        vblank = comb = comb_next = 0;
        ends = 1;
        hits = meet = 0;
        star = star_drawn = 0;
        moved_at = -10000;
        stale = ALL;
    }

    // A frame begins: its line 0 is where the clock is.
    CUDA_CALLABLE void begin(i32 first_line, i32 rows, u8* to) {
        row = -first_line;
        height = rows;
        picture = to;
        done = line = 0;
    }

    CUDA_CALLABLE bool displayed() const { return row >= 0 && row < height; }
    CUDA_CALLABLE bool watched() const { return picture && row >= top && row < bottom && row < height; }

    // Draw everything before `clock`. Nothing is to be done in the blank part of a line, nor, if nobody sees it, in a
    // line where no objects meet.
    CUDA_CALLABLE void draw_until(i32 clock) {
        if (clock <= line + BLANK || clock <= done) return;
        if (clock >= line + LINE) draw(clock);
        else {
            if (watched() || meet || stale & CHANGED) draw_line(clock);
            done = clock;
        }
    }

    CUDA_CALLABLE APART void draw(i32 clock) {
        begun = done;
        while (done < clock) {
            i32 begin = done - line - BLANK, end = clock - line - BLANK;
            if (end > WIDTH) end = WIDTH;
            if (begin < 0) begin = 0;
            if (end > begin && displayed()) segment(begin, end);
            if (end < WIDTH) {
                done = clock;
                return;
            }
            done = line += LINE;
            if (ends) end_line();
            row++;
        }
    }

    // The same where the line does not end, but for `done`. It is apart from the loop, before which compilers prepare
    // what its rounds need.
    CUDA_CALLABLE APART void draw_line(i32 clock) {
        i32 begin = done - line - BLANK;
        begun = done;
        if (displayed()) segment(begin < 0 ? 0 : begin, clock - line - BLANK);
    }

    // What changes between two lines, if `ends` says that anything does.
    CUDA_CALLABLE APART void end_line() {
        ends = 0;
        anew = 1;
        if (displayed()) {
            comb = 0;
            for (i32 k = 0; k < 2; k++)
                if (hidden[k]) hidden[k] = 0, renew_later(1 << k);
        }
        if (comb_next) comb = 1, comb_next = 0;
        if (reflected != reflect_next) reflected = reflect_next, renew_later(1 << PF);
        if (star && row >= 0 && row < height - 1) {
            star = star_drawn = star % 4 + 1;
            move(M0, star == 1 ? 18 : star == 2 ? 33 : star == 3 ? 0 : 17);
            renew_later(1 << M0);
        }
        ends = star || comb || hidden[0] || hidden[1];
    }

    CUDA_CALLABLE void renew_later(i32 objects) { stale |= objects | CHANGED; }

    CUDA_CALLABLE void move(i32 object, i32 left) {
        if (!left) return;
        i32 to = position[object] - left;
        position[object] = (u8)(to < 0 ? to + WIDTH : to >= WIDTH ? to - WIDTH : to);
        renew_later(1 << object);
    }

    // --- what is where -------------------------------------------------------------------------------------------

    // By the lower three bits of NUSIZ, a digit each.
    static CUDA_CALLABLE i32 copies(i32 nusiz) { return (i32)(0x13123221u >> 4 * nusiz & 15); }
    static CUDA_CALLABLE i32 spacing(i32 nusiz) { return (i32)(0x12141211u >> 4 * nusiz & 15) << 4; }
    static CUDA_CALLABLE i32 scale(i32 nusiz) { return (i32)(0x41211111u >> 4 * nusiz & 15); }

    CUDA_CALLABLE void player(i32 k, i32 at, bool first_too, Pixels& pixels) const {
        u32 graphic = vdel[k] ? grp_old[k] : grp[k];
        if (!graphic) return;
        if (!refp[k]) graphic = Bits::reversed(graphic);
        i32 size = nusiz[k] & 7, wide = scale(size);
        if (wide == 2) graphic = Bits::doubled(graphic);
        if (wide == 4) graphic = Bits::fourfold(graphic);
        // Copies side by side are one pattern, but for one that stands 64 pixels from the first.
        const u64 near = 1 | (u64)(size == 1 || size == 3) << 16 | (u64)(size == 2 || size == 3 || size == 6) << 32;
        if (first_too || near > 1) pixels.put(graphic * (first_too ? near : near - 1), at + (wide > 1));
        if (size == 4 || size == 6) pixels.put(graphic, at + 64);
    }

    // Objects that are switched on.
    CUDA_CALLABLE i32 shown() const {
        i32 objects = 0;
        for (i32 k = 0; k < 2; k++) {
            if (vdel[k] ? grp_old[k] : grp[k]) objects |= 1 << k;
            if (enam[k] && !resmp[k]) objects |= 4 << k;
        }
        if (vdelbl ? enabl_old : enabl) objects |= 1 << BL;
        if (pf[0] >> 4 | pf[1] | pf[2]) objects |= 1 << PF;
        return objects;
    }

    CUDA_CALLABLE void missile(i32 k, Pixels& pixels) const {
        if (!enam[k] || resmp[k] || (k == 0 && star_drawn == 3)) return;
        i32 size = nusiz[k] & 7, wide = 1 << (nusiz[k] >> 4 & 3);
        if (k == 0 && star_drawn == 2) wide = wide < 4 ? 2 : 8;
        for (i32 c = 0; c < copies(size); c++)
            pixels.put((1ull << wide) - 1, (position[M0 + k] + c * spacing(size)) % WIDTH);
    }

    CUDA_CALLABLE void playfield(Pixels& pixels) const {
        if (!(pf[0] >> 4 | pf[1] | pf[2])) return;
        u32 a = Bits::fourfold(pf[0] >> 4), b = Bits::fourfold(Bits::reversed(pf[1])), c = Bits::fourfold(pf[2]);
        pixels.put(a, 0);
        pixels.put(b, 16);
        pixels.put(c, 48);
        if (reflected) {
            pixels.put(Bits::fourfold(Bits::reversed(pf[2])), 80);
            pixels.put(Bits::fourfold(pf[1]), 112);
            pixels.put(Bits::fourfold(Bits::reversed(pf[0] & 0xf0)), 144);
        } else {
            pixels.put(a, 80);
            pixels.put(b, 96);
            pixels.put(c, 128);
        }
    }

    CUDA_CALLABLE bool begins_anew(i32 object) {
        if (!(stale >> object & 1)) return false;
        seen[object].clear();
        return true;
    }

    CUDA_CALLABLE void look_at(i32 object) {
        present = (u8)((present & ~(1 << object)) | seen[object].any() << object);
    }

    CUDA_CALLABLE APART void renew() {
        u32 as_before = pairs(~stale & EACH);
        for (i32 k = 0; k < 2; k++) {
            if (begins_anew(k)) player(k, position[k], !hidden[k], seen[k]), look_at(k);
            if (begins_anew(M0 + k)) missile(k, seen[M0 + k]), look_at(M0 + k);
        }
        if (begins_anew(BL)) {
            if (vdelbl ? enabl_old : enabl) seen[BL].put((1ull << (1 << (ctrlpf >> 4 & 3))) - 1, position[BL]);
            look_at(BL);
        }
        if (begins_anew(PF)) playfield(seen[PF]), look_at(PF);
        stale = 0;
        meet &= as_before;
        for (u32 rest = pairs(present) & ~hits & ~as_before; rest; rest &= rest - 1) {
            i32 bit = Bits::lowest(rest);
            meet |= seen[one(bit)].meets(seen[other(bit)]) << bit;
        }
    }

    // --- pixels begin..end - 1 of a displayed line ---------------------------------------------------------------

    CUDA_CALLABLE void segment(i32 begin, i32 end) {
        bool shows = watched();
        if (vblank & 2) {
            if (shows) fill(begin, end, 0);
            return;
        }
        if (stale) {
            if (!shows && !may_meet()) return;
            if (shows || (stale & EACH) != 1 << PF || may_meet_playfield(begin, end)) renew();
            else meet &= ~WITH_PF, stale |= CHANGED;
        }
        if (meet) collide(begin, end);
        if (!shows) return;
        if (end - begin < WIDTH) paint(begin, end);
        else if (anew) anew = 0, paint(begin, end);
        else paint_as_above();
    }

    // Whether objects that are switched on can meet that have not yet, so that it matters where they are.
    CUDA_CALLABLE bool may_meet() {
        if (!(stale & CHANGED)) return false;
        stale &= ~CHANGED;
        if (pairs(shown()) & ~hits) return true;
        meet = 0;
        return false;
    }

    // Whether any object that has not met the playfield yet is here, so that it matters where that is.
    CUDA_CALLABLE bool may_meet_playfield(i32 begin, i32 end) const {
        Pixels here = Pixels::range(begin, end);
        for (u32 rest = pairs(present | 1 << PF) & WITH_PF & ~hits; rest; rest &= rest - 1)
            if (seen[one(Bits::lowest(rest))].meets(here)) return true;
        return false;
    }

    CUDA_CALLABLE void collide(i32 begin, i32 end) {
        if (end - begin < WIDTH) {
            Pixels here = Pixels::range(begin, end);
            for (u32 rest = meet; rest; rest &= rest - 1) {
                i32 bit = Bits::lowest(rest);
                if (seen[one(bit)].both(here).meets(seen[other(bit)])) hits |= 1 << bit;
            }
        } else
            hits |= meet;
        meet &= ~hits;
    }

    // The two objects of a collision, by its bit of `hits`: of M0-P0, M0-P1, M1-P1, M1-P0, P0-BL, P0-PF, P1-BL, P1-PF,
    // M0-BL, M0-PF, M1-BL, M1-PF, none, BL-PF, M0-M1, P0-P1.
    static CUDA_CALLABLE i32 one(i32 bit) { return (i32)(0x0240332211003322ull >> 4 * bit & 15); }
    static CUDA_CALLABLE i32 other(i32 bit) { return (i32)(0x1350545454540110ull >> 4 * bit & 15); }

    // The collisions that these objects can have, by the bits of all six: those of which one() and other() are among them.
    static CUDA_CALLABLE u32 pairs(i32 objects) {
        static const u16 of[64] = {
            0x0, 0x0, 0x0, 0x8000, 0x0, 0x1, 0x2, 0x8003, 0x0, 0x8, 0x4, 0x800c,
            0x4000, 0x4009, 0x4006, 0xc00f, 0x0, 0x10, 0x40, 0x8050, 0x100, 0x111, 0x142, 0x8153,
            0x400, 0x418, 0x444, 0x845c, 0x4500, 0x4519, 0x4546, 0xc55f, 0x0, 0x20, 0x80, 0x80a0,
            0x200, 0x221, 0x282, 0x82a3, 0x800, 0x828, 0x884, 0x88ac, 0x4a00, 0x4a29, 0x4a86, 0xcaaf,
            0x2000, 0x2030, 0x20c0, 0xa0f0, 0x2300, 0x2331, 0x23c2, 0xa3f3, 0x2c00, 0x2c38, 0x2cc4, 0xacfc,
            0x6f00, 0x6f39, 0x6fc6, 0xefff};
        return of[objects & EACH];
    }

    CUDA_CALLABLE u8 color(i32 k) const { return colors[k] | parity; }

    CUDA_CALLABLE void fill(i32 begin, i32 end, u8 color) {
        const Colors back = Paint::all_of(color);
        for (i32 x = begin & -SIDE; x < end; x += SIDE) {
            u8* pixels = picture + row * WIDTH + x;
            Paint::store(pixels, Paint::filled(pixels, back, Paint::within(x, begin, end)));
        }
    }

    CUDA_CALLABLE void paint_as_above() {
        u8* pixels = picture + row * WIDTH;
        for (i32 x = 0; x < WIDTH; x += SIDE) Paint::store(pixels + x, Paint::load(pixels + x - WIDTH));
    }

    CUDA_CALLABLE void paint(i32 begin, i32 end) {
        if (comb && begin < 8) {
            fill(begin, end < 8 ? end : 8, 0);
            if (end <= 8) return;
            begin = 8;
        }
        if (!present) return fill(begin, end, color(3));
        // Where nothing else is switched on, the playfield is not in front, and has the players' colours.
        const bool alone = !(shown() & ~(1 << PF));
        const bool in_front = ctrlpf & 4 && !alone, as_players = ctrlpf & 2 && !in_front;
        const Colors zero = Paint::all_of(color(0)), one = Paint::all_of(color(1)), field = Paint::all_of(color(2));
        const Colors back = Paint::all_of(color(3));
        for (i32 x = begin & -SIDE; x < end; x += SIDE) {
            u8* pixels = picture + row * WIDTH + x;
            const Side here = Paint::within(x, begin, end);
            const Side zeros = (seen[P0].side(x) | seen[M0].side(x)) & here, bl = seen[BL].side(x) & here;
            const Side ones = (seen[P1].side(x) | seen[M1].side(x)) & here, pf = seen[PF].side(x) & here;
            Colors now = Paint::filled(pixels, back, here);
            if (zeros | ones | pf | bl) {
                const Side left = (Side)Pixels::below(WIDTH / 2 - x);
                if (!in_front) now = Paint::blended(now, field, as_players ? bl : bl | pf);
                if (as_players) now = Paint::blended(now, one, pf & ~left);
                now = Paint::blended(now, one, ones);
                if (as_players) now = Paint::blended(now, zero, pf & left);
                now = Paint::blended(now, zero, zeros);
                if (in_front) now = Paint::blended(now, field, bl | pf);
            }
            Paint::store(pixels, now);
        }
    }

    // Where drawing stops in the midst of a line, ALE, which draws by fours where no object is if one of these sets of
    // objects is switched on, has drawn up to three pixels more.
    CUDA_CALLABLE void fill_up() {
        i32 x = done - line - BLANK, begin = x & ~3, end = begin + 4, on = shown();
        if (x <= 0 || x == begin || line + BLANK + begin < begun || vblank & 2 || !watched()) return;
        u32 without_pf = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 8 | 1 << 12 | 1 << 16 | 1 << 18 | 1 << 20 | 1 << 24;
        u32 beside_pf = ctrlpf & 2 ? 1 : 1 | 1 << 1 | 1 << 2 | 1 << 16;
        if (!((on & 1 << PF ? beside_pf : without_pf) >> (on & 31) & 1)) return;
        if (stale) renew();
        for (i32 k = 0; k < OBJECTS; k++)
            if (seen[k].meets(Pixels::range(begin, end))) return;
        paint(x, end);
    }

    // --- registers -----------------------------------------------------------------------------------------------

    // The register `reg` gets `value` at `clock` of the frame (at the end of the writing cycle).
    CUDA_CALLABLE void write(i32 reg, u8 value, i32 clock) {
        if (is_there(reg, value)) return;
        last[reg] = value;
        change(reg, value, clock);
    }

    // Whether `value` is in `reg` already, and it means nothing to write it again: to NUSIZ0 to COLUBK, REFP0 to PF2, ENAM0
    // to ENABL, VDELP0 to RESMP1, but for a player that is hidden, or a missile that draws stars.
    CUDA_CALLABLE bool is_there(i32 reg, u8 value) const {
        u64 lasting = 0x3f0 | 0xf800 | 0xe0000000 | 0x3e000000000ull;
        return lasting >> reg & 1 && last[reg] == value && !(reg < 6 && hidden[reg - 4]) && !(reg == 4 && star);
    }

    CUDA_CALLABLE APART void change(i32 reg, u8 value, i32 clock) {
        i32 h = clock % LINE, x = h - BLANK, k;
        switch (reg) {
            case 0x01:  // VBLANK
                draw_until(clock + 1);
                vblank = value;
                break;
            case 0x04: case 0x05:  // NUSIZ0, NUSIZ1
                k = reg - 0x04;
                draw_until(clock + 8);
                nusiz[k] = value;
                if (k == 0) star_drawn = 0;
                hidden[k] = 0;
                renew_later(1 << k | 4 << k);
                break;
            case 0x06: case 0x07: case 0x08: case 0x09:  // COLUP0, COLUP1, COLUPF, COLUBK
                value &= 0xfe;
                if (colors[reg - 0x06] == value) break;
                if (picture) draw_until(clock);
                colors[reg - 0x06] = value;
                break;
            case 0x0a:  // CTRLPF
                if (ctrlpf == value && reflected == reflect_next) break;
                draw_until(clock);
                reflect_next = value & 1;
                ends = 1;
                if (x < 79 && reflected != reflect_next) reflected = reflect_next, renew_later(1 << PF);
                if (ctrlpf != value) renew_later(1 << BL);
                ctrlpf = value;
                break;
            case 0x0b: case 0x0c:  // REFP0, REFP1
                k = reg - 0x0b;
                value &= 8;
                if (refp[k] == value) break;
                draw_until(clock + 1);
                refp[k] = value;
                renew_later(1 << k);
                break;
            case 0x0d: case 0x0e: case 0x0f:  // PF0, PF1, PF2
                k = h / 3 & 3;
                draw_until(clock + (k == 0 ? 4 : k == 1 ? 5 : k == 2 ? 2 : 3));
                pf[reg - 0x0d] = value;
                renew_later(1 << PF);
                break;
            case 0x10: case 0x11:  // RESP0, RESP1
                reset_player(reg - 0x10, clock, x);
                break;
            case 0x12: case 0x13:  // RESM0, RESM1
                draw_until(clock + 8);
                position[M0 + reg - 0x12] = (u8)place(M0 + reg - 0x12, clock, h);
                if (reg == 0x12) star_drawn = 0;
                renew_later(4 << (reg - 0x12));
                break;
            case 0x14:  // RESBL
                draw_until(clock);
                position[BL] = (u8)place(BL, clock, h);
                renew_later(1 << BL);
                break;
            case 0x1b: case 0x1c:  // GRP0, GRP1
                set_graphic(reg - 0x1b, value, clock);
                break;
            case 0x1d: case 0x1e:  // ENAM0, ENAM1
                k = reg - 0x1d;
                value &= 2;
                if (enam[k] == value) break;
                draw_until(clock);
                enam[k] = value;
                renew_later(4 << k);
                break;
            case 0x1f:  // ENABL
                value &= 2;
                if (enabl == value) break;
                draw_until(clock);
                enabl = value;
                renew_later(1 << BL);
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
                renew_later(1 << k);
                break;
            case 0x27:  // VDELBL
                value &= 1;
                if (vdelbl == value) break;
                draw_until(clock);
                vdelbl = value;
                renew_later(1 << BL);
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
                if (k == 0) star_drawn = 0;
                renew_later(4 << k);
                break;
            case 0x2a:  // HMOVE
                start_motion(clock, h);
                break;
            case 0x2b:  // HMCLR
                for (i32 object = 0; object < OBJECTS; object++) set_motion(object, 0, clock);
                break;
            case 0x2c:  // CXCLR
                draw_until(clock);
                if (hits) hits = 0, renew_later(EACH);  // `meet` has not what hits had
                break;
        }
        anew = 1;  // not before: what was drawn until the change is as it was
    }

    // A player's new graphic, which makes the other player's last one its old one, and player 1's the ball's. Only
    // what is seen of this has to be drawn before.
    CUDA_CALLABLE void set_graphic(i32 k, u8 value, i32 clock) {
        i32 changes = 0;
        if (grp[k] != value && !vdel[k]) changes |= 1 << k;
        if (grp_old[1 - k] != grp[1 - k] && vdel[1 - k]) changes |= 2 >> k;
        if (k && enabl_old != enabl && vdelbl) changes |= 1 << BL;
        if (changes) draw_until(clock + 1), renew_later(changes);
        grp[k] = value;
        grp_old[1 - k] = grp[1 - k];
        if (k) enabl_old = enabl;
    }

    // Where a missile or the ball comes to stand that is reset, with what is else after an HMOVE in the same line.
    CUDA_CALLABLE i32 place(i32 object, i32 clock, i32 h) const {
        i32 moved = moved_at - (clock - h);
        if (moved == 9 && object == BL && (h == 18 || h == 27 || h == 30)) return h == 18 ? 3 : h == 27 ? 5 : 6;
        if (moved == 9 && object == M0 && h == 69) return 8;
        if (moved == 9 && object == M1 && h == 18) return 3;
        if (moved == 15 && object == BL && h == 69) return 10;
        return h < BLANK ? 2 : (h - BLANK + 4) % WIDTH;
    }

    CUDA_CALLABLE void reset_player(i32 k, i32 clock, i32 x) {
        i32 at = x < 0 ? 3 : (x + 5) % WIDTH, beam = x < 0 ? -2 : x;
        i32 size = nusiz[k] & 7, wide = scale(size);
        bool first = false, holds = false;
        for (i32 c = 0; c < copies(size); c++) {
            i32 start = position[k] + c * spacing(size), d = (beam - start + 3 * WIDTH) % WIDTH;
            if (d >= WIDTH - 5 && d <= WIDTH - 2) first = true;
            else if (d == WIDTH - 1 || d <= 8 * wide - 2) holds = true;
        }
        // While it is drawn a player stays where it is until 11 clocks later; all else is drawn until then, too.
        bool held = !first && holds;
        draw_until(held ? clock + 11 : clock);
        renew_later(1 << k);
        // The first copy is hidden to the end of the line. One that is reset at the end itself is still in that line.
        hidden[k] = !first && (held || x > -BLANK || row <= 0 || row > height);
        ends = 1;
        position[k] = (u8)at;
    }

    CUDA_CALLABLE void set_motion(i32 object, u8 value, i32 clock) {
        bool falls = object == M0 && motion[M0] == 7 && value == 6;
        if (falls && clock - moved_at == 63 && moved_at % LINE == 9) {
            draw_until(clock);
            star = star_drawn = ends = 1;
            renew_later(1 << M0);
        }
        motion[object] = value;
    }

    CUDA_CALLABLE void start_motion(i32 clock, i32 h) {
        draw_until(clock);
        moved_at = clock;
        ends = 1;
        bool longer = h <= 60, longer_next = h >= 225;  // the blank part of this line, or of the next, by 8 clocks
        if (longer && !no_comb) comb = 1;
        if (longer_next && !no_comb) comb_next = 1;
        // One pulse each 4 clocks, as many as each object's motion says, of which those in a blank part move it: at
        // once, also those of the next line.
        i32 first = 4 * ((h + 1) / 4) + 8;
        i32 blank = pulses_until(BLANK + (longer ? 8 : 0), first), next_line = pulses_until(LINE, first);
        i32 next_blank = pulses_until(LINE + BLANK + (longer_next ? 8 : 0), first);
        for (i32 object = 0; object < OBJECTS; object++) {
            i32 count = motion[object] ^ 8, left = (longer ? -8 : 0) + (longer_next ? -8 : 0);
            left += count < blank ? count : blank;
            left += (count < next_blank ? count : next_blank) - (count < next_line ? count : next_line);
            move(object, left);
        }
        for (i32 k = 0; k < 2; k++)
            if (hidden[k]) hidden[k] = 0, renew_later(1 << k);
        if (star) star = star_drawn = 0, renew_later(1 << M0);
    }

    static CUDA_CALLABLE i32 pulses_until(i32 clock, i32 first) { return clock > first ? (clock - first) / 4 : 0; }
};
