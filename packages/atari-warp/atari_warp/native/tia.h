// Television interface adaptor: registers, objects, collisions and picture. Times are colour clocks: a line has 228, of
// which the last 160 are visible; h counts the clocks of a line, and x = h - 68.

struct Tia {
    enum { P0, P1, M0, M1, BL, OBJECTS };
    enum { LINE = 228, BLANK = 68, WIDTH = 160, SIDE = Paint::SIDE };

    i32 begun;       // clock of the frame at which the last advance began,
    i32 done;        // clock up to which writes have taken effect,
    i32 line;        // and clock of the beginning of its line
    i32 painted;     // pixels of that line that are drawn
    i32 row;         // picture row of the line of `done`; negative above the picture
    i32 height;      // rows of the picture
    u8* picture;     // (height, 160) colours of the frame, or null if it is not drawn
    i32 top, bottom; // first visible row, and the row after the last
    u8 colors[4];    // of player 0, player 1, playfield and ball, background
    u8 pf[3], ctrlpf, reflected, reflect_next;
    u8 nusiz[2], grp[2], grp_old[2], refp[2], vdel[2];
    u8 enam[2], resmp[2], enabl, enabl_old, vdelbl;
    u8 motion[OBJECTS];  // high nibble of HMxx
    u8 vblank, comb, comb_next, no_comb, parity;
    u8 ends;             // end_line() has something to do
    u8 hidden[2];        // the first copy of a player is not drawn in this line
    u8 position[OBJECTS];
    u8 last[64];         // last value of each register
    u16 hits;            // collisions: bits 2k + 1 and 2k are D7 and D6 of register k
    u8 on;               // bits of objects that are enabled; bit 5: playfield
    u8 stale;            // bits of objects whose pixels must be computed again; bit 6: something has changed since the
                         // last call of may_meet()
    u8 mixed;            // bits of objects that have changed within this line: `seen` is for this line only
    u8 kept;             // bits of objects whose pixels after their change are in `next`
    u8 from[8];          // first pixel of each object to compute again
    u8 anew;             // a line may differ from the one above, if that one was painted
    u8 present;          // bits of objects that have pixels in this line
    u16 meet;            // collisions, numbered as in hits, that occur in this line and are not in hits
    u8 star;             // phase of missile 0's starfield, from 1; 0: none
    u8 star_drawn;       // the phase, or 0 where missile 0 is drawn normally in this line
    i32 moved_at;        // clock of the last HMOVE
    Pixels seen[OBJECTS + 1];  // pixels of each object, and of the playfield
    Pixels next[OBJECTS + 1];

    enum { PF = OBJECTS, EACH = 63, MOVABLE = 31, CHANGED = 64, ALL = 127, WITH_PF = 0x2aa0 };

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
        on = mixed = kept = 0;
        stale = ALL;
    }

    // Begin a frame: the clock is at its line 0.
    CUDA_CALLABLE void begin(i32 first_line, i32 rows, u8* to) {
        row = -first_line;
        height = rows;
        picture = to;
        done = line = 0;
        leave_line();
    }

    CUDA_CALLABLE bool displayed() const { return row >= 0 && row < height; }
    CUDA_CALLABLE bool watched() const { return picture && row >= top && row < bottom && row < height; }

    // Draw everything before `clock`.
    CUDA_CALLABLE void draw_until(i32 clock) {
        reach(clock);
        if (done - line - BLANK > painted) draw_line();
    }

    // Advance to `clock`, and draw the lines that end before. Pixels of the last line are drawn when the line ends, or
    // before a change of something else than objects.
    CUDA_CALLABLE void reach(i32 clock) {
        if (clock <= line + BLANK || clock <= done) return;
        if (clock >= line + LINE) draw(clock);
        else begun = done, done = clock;
    }

    CUDA_CALLABLE APART void draw(i32 clock) {
        const bool nothing = !picture && !(pairs(on) & ~hits);
        begun = done;
        do {
            if (!nothing && displayed() && (watched() || meet || stale & CHANGED)) segment(painted, WIDTH);
            done = line += LINE;
            leave_line();
            if (ends) end_line();
            row++;
        } while (clock >= line + LINE);
        done = clock;
    }

    // Draw the pixels before `done` of its line. Nothing is to be done in an invisible line without collisions.
    CUDA_CALLABLE APART void draw_line() {
        i32 begin = painted;
        painted = done - line - BLANK;
        if (displayed() && (watched() || meet || stale & CHANGED)) segment(begin, painted);
    }

    // Begin another line, or this line once more.
    CUDA_CALLABLE void leave_line() {
        painted = 0;
        for (i32 k = 0; k < 8; k++) from[k] = 0;
        stale |= mixed;
        mixed = 0;
    }

    // Objects are about to change at `done`. In a visible line their previous pixels are kept for what is before.
    CUDA_CALLABLE void mark(i32 objects) {
        i32 x = done - line - BLANK;
        if (x > painted) {
            if (picture || pairs(on) & ~hits) split(objects, x);
            else painted = x;
        }
        renew_later(objects);
    }

    CUDA_CALLABLE APART void split(i32 objects, i32 x) {
        if (vblank & 2) return;
        // Colours may depend on whether there is another object than the playfield.
        const bool recolors = ctrlpf & 6 && objects & MOVABLE && !(on & MOVABLE & ~objects);
        if (recolors || !watched()) return draw_line();
        for (i32 rest = objects; rest; rest &= rest - 1) {
            i32 k = Bits::lowest(rest);
            if (stale >> k & 1 && from[k] < x) compute_apart(k);
            from[k] = (u8)x;
        }
    }

    // As mark(), for changes that do not matter to objects without pixels.
    CUDA_CALLABLE void mark_enabled(i32 objects) {
        if (objects & on) mark(objects & on);
    }

    // Objects change at `clock`.
    CUDA_CALLABLE void change_objects(i32 objects, i32 clock) {
        reach(clock);
        mark(objects);
    }

    CUDA_CALLABLE void enable(i32 object, bool enabled) { on = (u8)((on & ~(1 << object)) | enabled << object); }

    // Apply changes between two lines, if `ends` is set.
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

    CUDA_CALLABLE void renew_later(i32 objects) {
        stale |= objects | CHANGED;
        kept &= ~objects;
    }

    CUDA_CALLABLE void move(i32 object, i32 left) {
        if (!left) return;
        mark_enabled(1 << object);
        i32 to = position[object] - left;
        position[object] = (u8)(to < 0 ? to + WIDTH : to >= WIDTH ? to - WIDTH : to);
    }

    // --- pixels of objects ---------------------------------------------------------------------------------------

    // Digits are indexed by the lower three bits of NUSIZ.
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
        // Adjacent copies are one pattern, except a copy at a distance of 64 pixels.
        const u64 near = 1 | (u64)(size == 1 || size == 3) << 16 | (u64)(size == 2 || size == 3 || size == 6) << 32;
        if (first_too || near > 1) pixels.put(graphic * (first_too ? near : near - 1), at + (wide > 1));
        if (size == 4 || size == 6) pixels.put(graphic, at + 64);
    }

    CUDA_CALLABLE void missile(i32 k, Pixels& pixels) const {
        if (!enam[k] || resmp[k] || (k == 0 && star_drawn == 3)) return;
        i32 size = nusiz[k] & 7, wide = 1 << (nusiz[k] >> 4 & 3);
        if (k == 0 && star_drawn == 2) wide = wide < 4 ? 2 : 8;
        const u64 pattern = (1ull << wide) - 1;
        pixels.put(pattern, position[M0 + k]);
        for (i32 c = 1; c < copies(size); c++) pixels.put(pattern, position[M0 + k] + c * spacing(size));
    }

    CUDA_CALLABLE void playfield(Pixels& pixels) const {
        u64 a = Bits::fourfold(pf[0] >> 4), b = Bits::fourfold(Bits::reversed(pf[1])), c = Bits::fourfold(pf[2]);
        pixels.w0 = a | b << 16 | c << 48;
        pixels.w1 = c >> 16 | a << 16 | b << 32;
        pixels.w2 = c;
        if (!reflected) return;
        a = Bits::fourfold(Bits::reversed(pf[0] & 0xf0)), b = Bits::fourfold(pf[1]);
        c = Bits::fourfold(Bits::reversed(pf[2]));
        pixels.w1 = pixels.w1 & 0xffff | c << 16 | b << 48;
        pixels.w2 = b >> 16 | a << 16;
    }

    // Compute the pixels of an object from `from` on.
    CUDA_CALLABLE HERE void compute(i32 object) {
        const i32 bit = 1 << object;
        Pixels pixels;
        if (kept & bit) pixels = next[object];
        else {
            pixels.clear();
            if (object == PF) playfield(pixels);
            else if (object <= P1) player(object, position[object], !hidden[object], pixels);
            else if (object <= M1) missile(object - M0, pixels);
            else if (on & bit) pixels.put((1ull << (1 << (ctrlpf >> 4 & 3))) - 1, position[BL]);
        }
        if (from[object]) {
            next[object] = pixels;
            kept |= bit, mixed |= bit;
            seen[object].replace_from(from[object], pixels);
        } else {
            kept &= ~bit, mixed &= ~bit;
            seen[object] = pixels;
        }
        present = (u8)((present & ~bit) | seen[object].any() << object);
    }

    CUDA_CALLABLE APART void compute_apart(i32 object) {
        if (object == PF) compute(PF);
        else compute(object);
    }

    CUDA_CALLABLE APART void renew() {
        u32 as_before = pairs(~stale & EACH);
        if (stale & 1 << P0) compute(P0);
        if (stale & 1 << P1) compute(P1);
        if (stale & 1 << M0) compute(M0);
        if (stale & 1 << M1) compute(M1);
        if (stale & 1 << BL) compute(BL);
        if (stale & 1 << PF) compute(PF);
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
        else if (anew) anew = mixed != 0, paint(begin, end);
        else paint_as_above();
    }

    // Whether enabled objects may have a new collision, so that their pixels matter.
    CUDA_CALLABLE bool may_meet() {
        if (!(stale & CHANGED)) return false;
        stale &= ~CHANGED;
        if (pairs(on) & ~hits) return true;
        meet = 0;
        return false;
    }

    // Whether an object without a collision with the playfield is in this range, so that the playfield matters.
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

    // Objects of a collision, by its bit of `hits`: M0-P0, M0-P1, M1-P1, M1-P0, P0-BL, P0-PF, P1-BL, P1-PF, M0-BL,
    // M0-PF, M1-BL, M1-PF, none, BL-PF, M0-M1, P0-P1.
    static CUDA_CALLABLE i32 one(i32 bit) { return (i32)(0x0240332211003322ull >> 4 * bit & 15); }
    static CUDA_CALLABLE i32 other(i32 bit) { return (i32)(0x1350545454540110ull >> 4 * bit & 15); }

    // Possible collisions of a set of objects, by its six bits: those whose one() and other() are in the set.
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
        // A playfield without other enabled objects is not in front, and has the players' colours.
        const bool alone = !(on & MOVABLE);
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

    // ALE draws four pixels at once where no object is, if one of these sets of objects is enabled. So a frame that
    // ends within a line may have up to three more pixels.
    CUDA_CALLABLE void fill_up() {
        i32 x = done - line - BLANK, begin = x & ~3, end = begin + 4;
        if (x <= 0 || x == begin || line + BLANK + begin < begun || vblank & 2 || !watched()) return;
        u32 without_pf = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 8 | 1 << 12 | 1 << 16 | 1 << 18 | 1 << 20 | 1 << 24;
        u32 beside_pf = ctrlpf & 2 ? 1 : 1 | 1 << 1 | 1 << 2 | 1 << 16;
        if (!((on & 1 << PF ? beside_pf : without_pf) >> (on & 31) & 1)) return;
        leave_line();
        painted = x;
        if (stale) renew();
        for (i32 k = 0; k < OBJECTS; k++)
            if (seen[k].meets(Pixels::range(begin, end))) return;
        paint(x, end);
    }
