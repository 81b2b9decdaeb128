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
                if (hits) hits = 0, renew_later(EACH);  // `meet` lacks collisions that were in hits
                break;
        }
        anew = 1;  // after the change, as pixels before it are drawn by now
    }

    // Set a player's graphic; the other player's graphic becomes its old one, and with player 1 also the ball's. Only
    // what this changes visibly has to be drawn before.
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
        draw_until(held ? clock + 11 : clock);
        renew_later(1 << k);
        // The first copy is hidden to the end of the line, which a reset at the end belongs to.
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
            if (hidden[k]) hidden[k] = 0, renew_later(1 << k);
        if (star) star = star_drawn = 0, renew_later(1 << M0);
    }

    static CUDA_CALLABLE i32 pulses_until(i32 clock, i32 first) { return clock > first ? (clock - first) / 4 : 0; }
};
