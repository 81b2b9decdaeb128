    // --- registers -----------------------------------------------------------------------------------------------

    // Write `value` to `reg` at `clock` of the frame (the end of the writing cycle).
    CUDA_CALLABLE void write(i32 reg, u8 value, i32 clock) {
        if (is_there(reg, value)) return;
        last[reg] = value;
        change(reg, value, clock);
    }

    // Whether `value` is in `reg` already and writing it again has no effect: in NUSIZ0 to COLUBK, REFP0 to PF2, ENAM0
    // to ENABL and VDELP0 to RESMP1, unless a player is hidden or a missile draws a starfield.
    CUDA_CALLABLE bool is_there(i32 reg, u8 value) const {
        u64 lasting = 0x3f0 | 0xf800 | 0xe0000000 | 0x3e000000000ull;
        return lasting >> reg & 1 && last[reg] == value && !(reg < 6 && hidden[reg - 4]) && !(reg == 4 && star);
    }

    // Whether a register is not one of sound, and exists.
    static CUDA_CALLABLE bool draws(i32 reg) { return reg < 0x15 || (reg > 0x1a && reg < 0x2d); }

    // Whether a register is a motion whose change has no effect before HMOVE: HMP0, HMP1, HMM1, HMBL.
    static CUDA_CALLABLE bool moves(i32 reg) { return reg >= 0x20 && reg <= 0x24 && reg != 0x22; }

    CUDA_CALLABLE APART void change(i32 reg, u8 value, i32 clock) {
        i32 k;
        switch (reg) {
            case 0x01:  // VBLANK
                draw_until(clock + 1);
                vblank = value;
                break;
            case 0x04: case 0x05:  // NUSIZ0, NUSIZ1
                k = reg - 0x04;
                reach(clock + 8);
                mark_enabled(1 << k | 4 << k);
                nusiz[k] = value;
                if (k == 0) star_drawn = 0;
                hidden[k] = 0;
                break;
            case 0x06: case 0x07: case 0x08: case 0x09:  // COLUP0, COLUP1, COLUPF, COLUBK
                value &= 0xfe;
                if (colors[reg - 0x06] == value) break;
                if (picture) draw_until(clock);
                colors[reg - 0x06] = value;
                break;
            case 0x0a:  // CTRLPF
                if (ctrlpf == value && reflected == reflect_next) break;
                if ((ctrlpf ^ value) & 6) draw_until(clock);
                else reach(clock);
                reflect_next = value & 1;
                ends = 1;
                if (clock % LINE < BLANK + 79 && reflected != reflect_next) mark_enabled(1 << PF), reflected = reflect_next;
                if (ctrlpf != value) mark_enabled(1 << BL);
                ctrlpf = value;
                break;
            case 0x0b: case 0x0c:  // REFP0, REFP1
                k = reg - 0x0b;
                value &= 8;
                if (refp[k] == value) break;
                reach(clock + 1);
                mark_enabled(1 << k);
                refp[k] = value;
                break;
            case 0x0d: case 0x0e: case 0x0f:  // PF0, PF1, PF2
                set_playfield(reg - 0x0d, value, clock);
                break;
            case 0x10: case 0x11:  // RESP0, RESP1
                reset_player(reg - 0x10, clock, clock % LINE - BLANK);
                break;
            case 0x12: case 0x13:  // RESM0, RESM1
                reach(clock + 8);
                mark_enabled(4 << (reg - 0x12));
                position[M0 + reg - 0x12] = (u8)place(M0 + reg - 0x12, clock, clock % LINE);
                if (reg == 0x12) star_drawn = 0;
                break;
            case 0x14:  // RESBL
                reach(clock);
                mark_enabled(1 << BL);
                position[BL] = (u8)place(BL, clock, clock % LINE);
                break;
            case 0x1b: case 0x1c:  // GRP0, GRP1
                set_graphic(reg - 0x1b, value, clock);
                break;
            case 0x1d: case 0x1e:  // ENAM0, ENAM1
                k = reg - 0x1d;
                value &= 2;
                if (enam[k] == value) break;
                change_objects(4 << k, clock);
                enam[k] = value;
                enable(M0 + k, value && !resmp[k]);
                break;
            case 0x1f:  // ENABL
                value &= 2;
                if (enabl == value) break;
                change_objects(1 << BL, clock);
                enabl = value;
                enable_ball();
                break;
            case 0x20: case 0x21: case 0x22: case 0x23: case 0x24:  // HMP0, HMP1, HMM0, HMM1, HMBL
                set_motion(reg - 0x20, value >> 4, clock);
                break;
            case 0x25: case 0x26:  // VDELP0, VDELP1
                k = reg - 0x25;
                value &= 1;
                if (vdel[k] == value) break;
                change_objects(1 << k, clock);
                vdel[k] = value;
                enable_player(k);
                break;
            case 0x27:  // VDELBL
                value &= 1;
                if (vdelbl == value) break;
                change_objects(1 << BL, clock);
                vdelbl = value;
                enable_ball();
                break;
            case 0x28: case 0x29:  // RESMP0, RESMP1
                k = reg - 0x28;
                value &= 2;
                if (resmp[k] == value) break;
                change_objects(4 << k, clock);
                if (!value) {
                    i32 wide = scale(nusiz[k] & 7);
                    position[M0 + k] = (u8)((position[k] + (wide == 1 ? 4 : wide == 2 ? 8 : 16)) % WIDTH);
                }
                resmp[k] = value;
                if (k == 0) star_drawn = 0;
                enable(M0 + k, enam[k] && !value);
                break;
            case 0x2a:  // HMOVE
                start_motion(clock, clock % LINE);
                break;
            case 0x2b:  // HMCLR
                for (i32 object = 0; object < OBJECTS; object++) set_motion(object, 0, clock);
                break;
            case 0x2c:  // CXCLR
                draw_until(clock);
                if (hits) hits = 0, renew_later(EACH);  // `meet` lacks collisions that were in hits
                break;
        }
        anew = 1;  // lines that end before the change are drawn by now
    }

    CUDA_CALLABLE void enable_player(i32 k) { enable(k, vdel[k] ? grp_old[k] : grp[k]); }
    CUDA_CALLABLE void enable_ball() { enable(BL, vdelbl ? enabl_old : enabl); }

    CUDA_CALLABLE void set_playfield(i32 k, u8 value, i32 clock) {
        const i32 phase = clock / 3 & 3;  // a line has a multiple of four cycles
        change_objects(1 << PF, clock + (phase == 0 ? 4 : phase == 1 ? 5 : phase == 2 ? 2 : 3));
        pf[k] = value;
        enable(PF, pf[0] >> 4 | pf[1] | pf[2]);
        anew = 1;
    }

    // Set a player's graphic; the other player's graphic becomes its old one, and with player 1 also the ball's. Only
    // what this changes visibly has to be drawn before.
    CUDA_CALLABLE HERE void set_graphic(i32 k, u8 value, i32 clock) {
        i32 changes = 0;
        if (grp[k] != value && !vdel[k]) changes |= 1 << k;
        if (grp_old[1 - k] != grp[1 - k] && vdel[1 - k]) changes |= 2 >> k;
        if (k && enabl_old != enabl && vdelbl) changes |= 1 << BL;
        if (changes) change_objects(changes, clock + 1);
        grp[k] = value;
        grp_old[1 - k] = grp[1 - k];
        if (k) enabl_old = enabl;
        if (!changes) return;
        enable_player(0), enable_player(1), enable_ball();
        anew = 1;
    }

    // Position of a missile or ball after a reset, with effects of an HMOVE in the same line.
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
        // A player that is being drawn moves 11 clocks later; everything is drawn up to then.
        bool held = !first && holds;
        reach(held ? clock + 11 : clock);
        mark_enabled(1 << k);
        // The first copy is hidden to the end of the line, which a reset at the end belongs to.
        hidden[k] = !first && (held || x > -BLANK || row <= 0 || row > height);
        ends = 1;
        position[k] = (u8)at;
    }

    CUDA_CALLABLE void set_motion(i32 object, u8 value, i32 clock) {
        bool falls = object == M0 && motion[M0] == 7 && value == 6;
        if (falls && clock - moved_at == 63 && moved_at % LINE == 9) {
            change_objects(1 << M0, clock);
            star = star_drawn = ends = 1;
        }
        motion[object] = value;
    }

    CUDA_CALLABLE void start_motion(i32 clock, i32 h) {
        reach(clock);
        moved_at = clock;
        ends = 1;
        bool longer = h <= 60, longer_next = h >= 225;  // 8 more blank clocks in this line, or in the next
        if (longer && !no_comb) comb = 1;
        if (longer_next && !no_comb) comb_next = 1;
        // A pulse every 4 clocks, as many as an object's motion. Pulses in a blank part move the object; all are
        // applied at once, also those of the next line.
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
            if (hidden[k]) mark_enabled(1 << k), hidden[k] = 0;
        if (star) mark_enabled(1 << M0), star = star_drawn = 0;
    }

    static CUDA_CALLABLE i32 pulses_until(i32 clock, i32 first) { return clock > first ? (clock - first) / 4 : 0; }
};
