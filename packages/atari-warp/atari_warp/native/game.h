// Game: its start, its inputs, and score, lives and game over as its memory shows them.

// Numbers from the host, in the order of `Game.facts` in games.py.
enum { CARTRIDGE, SUPERCHIP, NO_COMB, PAL, FIRST_LINE, ROWS, SWAPPED, PADDLE, OTHER_PADDLES, PADDLE_MOST, LEGAL, LOAD_FRAMES, START_FRAMES, FIRST_FRAME, LOAD_SWITCHES, SWITCHES, WRAP, LEAST, MOST, WATCHED, FIRST_LIVES, FALLING, KEEP_ONE, LASTS, WHOLE, LIVES_AT_END, TERMS, FACTS };
// Terms of the rules follow these numbers, four numbers each: purpose, byte, table and way to end. A way to
// end holds if all its terms agree. Byte numbers from EARLIER on stand for the watched byte one frame ago, for the
// score (SCORED), for 1 where the score fell (FELL), and for the RAM of a Superchip (CHIP).
//
// - KEEP: lives do not change while all terms agree; with KEEP_ONE only the loss of one life is ignored.
// - UNTIL: lives do not change before all terms have agreed once.
// - INSTEAD: points of a second score, which replace others in a frame that has any.
// - FINAL, MORE: at the end, points that replace all others, and points that are added, for one way to end or ANY.
// - AGAIN: while all terms agree, a frame repeats the points of the previous one.
// - STILL: the same, and score, lives and end do not change.
// - TOTAL: no way to end counts unless the sum of these terms is WHOLE; a way has to hold for LASTS frames.
// - SAME: sets of bytes, numbered like ways; each set adds a point while its bytes are equal.
// - PAR, STROKES: golf. Strokes of all holes are displayed while no par is. When the watched byte, the number of the
//   hole, changes, the points are par minus the strokes of the hole.
enum { SCORE, LIVES, OVER, KEEP, INSTEAD, FINAL, AGAIN, TOTAL, SAME, MORE, PAR, STROKES, UNTIL, STILL };
enum { TERM = 4, ANY = -1, NONE = -1 };
enum { EARLIER = 128, SCORED, FELL, CHIP = 256 };
enum { FIRST_LIMIT = 291 * Console::CYCLES, PAL_LIMIT = 343 * Console::CYCLES, IDLE_FRAMES = 60, FIRST_BOOT = 1 };
enum { PADDLE_SPEED = 23000, PADDLE_LEAST = 27450 };

// Power-on state of all consoles, and the start of the game. For each reset of a console there is a value of the timer,
// and 128 bytes for a Superchip.
struct Made {
    const u8 *ram, *more_ram;
    const i32 *timers, *script;  // action and switches of each frame of the first start, then of all others
    i32 number_of_timers, number_of_more;
};

struct Player {
    Console& console;
    const Made& made;
    const i32* facts;
    const i32* tables;  // (tables, 256)
    u8* screens;        // three pictures: frames alternate between two, and the third is a copy
    i32 unseen;         // frames to play before frames are drawn
    i32 missed;         // reasons why frames should have been drawn
    i32 whole;          // bits of the pictures that were drawn completely
    bool loading;       // the first start, at the default mode

    // AROUND: a drawn frame that ends early shows older pixels below, and a frame that began before it was drawn shows
    // them above. END: the last frame of a game is visible.
    enum { AROUND = 1, END = 2 };

    // Directions and FIRE that an action presses; actions have ALE's numbers.
    enum { FIRE = 1, UP = 2, RIGHT = 4, LEFT = 8, DOWN = 16 };

    static CUDA_CALLABLE i32 pressed(i32 action) {
        switch (action) {
            case 1: return FIRE;
            case 2: return UP;
            case 3: return RIGHT;
            case 4: return LEFT;
            case 5: return DOWN;
            case 6: return UP | RIGHT;
            case 7: return UP | LEFT;
            case 8: return DOWN | RIGHT;
            case 9: return DOWN | LEFT;
            case 10: return UP | FIRE;
            case 11: return RIGHT | FIRE;
            case 12: return LEFT | FIRE;
            case 13: return DOWN | FIRE;
            case 14: return UP | RIGHT | FIRE;
            case 15: return UP | LEFT | FIRE;
            case 16: return DOWN | RIGHT | FIRE;
            case 17: return DOWN | LEFT | FIRE;
            default: return 0;
        }
    }

    // Return the action, or NOOP if this game does not take it.
    CUDA_CALLABLE i32 legal(i32 action) const {
        return action > 0 && action < 18 && facts[LEGAL] >> action & 1 ? action : 0;
    }

    CUDA_CALLABLE void press(i32 action, i32 switches) {
        i32 keys = pressed(action), up = 0x10, down = 0x20, left = 0x40, right = 0x80, ports = 0xff;
        console.swchb = (u8)(switches | facts[loading ? LOAD_SWITCHES : SWITCHES]);
        for (i32 k = 0; k < 6; k++) console.inpt[k] = 128;
        for (i32 k = 0; k < 4; k++) console.paddle[k] = -1;
        i32 turned = facts[PADDLE];
        if (turned >= 0) {
            if (keys & LEFT) console.resistance += PADDLE_SPEED;
            if (keys & RIGHT) console.resistance -= PADDLE_SPEED;
            if (console.resistance < PADDLE_LEAST) console.resistance = PADDLE_LEAST;
            if (console.resistance > facts[PADDLE_MOST]) console.resistance = facts[PADDLE_MOST];
            if (keys & FIRE) ports &= ~(0x80 >> turned);
            console.paddle[0] = console.paddle[1] = charged(in_the_middle());
            console.paddle[turned] = charged(console.resistance);
            console.paddle[2] = console.paddle[3] = facts[OTHER_PADDLES];
        } else {
            if (facts[SWAPPED]) up = 1, down = 2, left = 4, right = 8;
            if (keys & UP) ports &= ~up;
            if (keys & DOWN) ports &= ~down;
            if (keys & LEFT) ports &= ~left;
            if (keys & RIGHT) ports &= ~right;
            if (keys & FIRE) console.inpt[facts[SWAPPED] ? 5 : 4] = 0;
        }
        console.swcha = (u8)ports;
    }

    CUDA_CALLABLE i32 in_the_middle() const { return (PADDLE_LEAST + facts[PADDLE_MOST]) / 2; }

    static CUDA_CALLABLE i32 charged(i32 resistance) { return (i32)((u64)resistance * 1904 / 100000); }

    CUDA_CALLABLE u8* picture(i32 k) const { return screens + k * facts[ROWS] * Tia::WIDTH; }

    CUDA_CALLABLE APART void frame(i32 action, i32 switches) {
        bool seen = unseen-- <= 0, begins = console.ended;
        press(action, switches);
        if (begins) console.turn ^= 1;
        console.frame(facts[FIRST_LINE], facts[ROWS], seen ? picture(console.turn) : nullptr);
        console.frames++;
        if (seen && begins && console.whole()) whole |= 1 << console.turn;
        else if (seen) missed |= AROUND;
    }

    CUDA_CALLABLE i32 looked_up(i32 k) const {
        const i32* term = facts + FACTS + TERM * k;
        i32 byte = term[1];
        i32 value = byte < EARLIER ? console.ram[byte] : byte >= CHIP ? console.more_ram[byte - CHIP]
            : byte == SCORED ? console.score & 255 : byte == FELL ? console.fell : console.watched;
        return tables[256 * term[2] + value];
    }

    // Whether term `k` has a purpose; for FINAL and MORE it must also have this way to end, or ANY.
    CUDA_CALLABLE bool is_for(i32 k, i32 purpose, i32 way) const {
        const i32* term = facts + FACTS + TERM * k;
        return term[0] == purpose && ((purpose != FINAL && purpose != MORE) || term[3] == ANY || term[3] == way);
    }

    CUDA_CALLABLE i32 sum(i32 purpose, i32 way = ANY) const {
        i32 total = 0;
        for (i32 k = 0; k < facts[TERMS]; k++)
            if (is_for(k, purpose, way)) total += looked_up(k);
        return total;
    }

    CUDA_CALLABLE bool any(i32 purpose, i32 way) const {
        for (i32 k = 0; k < facts[TERMS]; k++)
            if (is_for(k, purpose, way)) return true;
        return false;
    }

    CUDA_CALLABLE i32 sets_that_are_same() const {
        i32 sets = 0, k = 0;
        while (k < facts[TERMS] && facts[FACTS + TERM * k] != SAME) k++;
        while (k < facts[TERMS] && facts[FACTS + TERM * k] == SAME) {
            i32 set = facts[FACTS + TERM * k + 3], first = looked_up(k);
            bool all = true;
            for (; k < facts[TERMS] && facts[FACTS + TERM * k] == SAME && facts[FACTS + TERM * k + 3] == set; k++)
                all = all && looked_up(k) == first;
            sets += all;
        }
        return sets;
    }

    // Whether there are terms with a purpose, and all agree.
    CUDA_CALLABLE bool agree(i32 purpose) const {
        bool any = false;
        for (i32 k = 0; k < facts[TERMS]; k++) {
            if (facts[FACTS + TERM * k] != purpose) continue;
            if (!looked_up(k)) return false;
            any = true;
        }
        return any;
    }

    // Way to end that holds, or NONE.
    CUDA_CALLABLE i32 way_to_end() const {
        if (sum(TOTAL) != facts[WHOLE]) return NONE;
        for (i32 k = 0; k < facts[TERMS]; k++) {
            if (facts[FACTS + TERM * k] != OVER) continue;
            i32 way = facts[FACTS + TERM * k + 3];
            bool all = true;
            for (; k < facts[TERMS] && facts[FACTS + TERM * k] == OVER && facts[FACTS + TERM * k + 3] == way; k++)
                all = all && looked_up(k);
            if (all) return way;
            k--;
        }
        return NONE;
    }

    // Points for a new number of a hole. A counter of strokes that falls is taken to have been reset to 0.
    CUDA_CALLABLE i32 of_last_hole(i32 hole) {
        i32 points = 0, par = sum(PAR), shown = sum(STROKES);
        if (hole != console.watched && console.strokes) points = console.par - console.strokes, console.strokes = 0;
        if (par) console.par = par;
        else console.strokes += shown - (shown < console.shown ? 0 : console.shown), console.shown = shown;
        return points;
    }

    // Update score, lives and end, and return the points since the last update. `first`: at the start of a game.
    CUDA_CALLABLE APART i32 count(bool first = false) {
        if (agree(STILL) && !first) return console.paid;
        i32 before = console.score, watched = facts[WATCHED] < 0 ? 0 : console.ram[facts[WATCHED]], points;
        if (first) {
            console.watched = watched;
            console.lasted = console.par = console.strokes = console.shown = 0;
            console.kept = any(UNTIL, ANY);
        }
        console.score = sum(SCORE) + sets_that_are_same();
        points = console.score - before;
        console.fell = points < 0 && !first;
        if (points < 0 && facts[WRAP]) points += facts[WRAP];
        if (points && points < facts[LEAST]) points = facts[LEAST];
        if (points && points > facts[MOST]) points = facts[MOST];
        i32 instead = sum(INSTEAD) - console.instead;
        console.instead += instead;
        if (instead) points = instead;
        if (any(STROKES, ANY)) points = of_last_hole(watched);
        i32 way = way_to_end();
        console.lasted = way == NONE ? 0 : console.lasted + 1;
        console.over = console.lasted >= facts[LASTS];
        if (console.over && any(FINAL, way)) points = sum(FINAL, way);
        if (console.over) points += sum(MORE, way);
        if (agree(AGAIN)) points = console.paid;
        console.paid = first ? 0 : points;
        if (console.over && unseen >= 0) missed |= END;
        if (agree(UNTIL)) console.kept = 0;
        if (console.over) console.lives = facts[LIVES_AT_END];
        else if (first && facts[FIRST_LIVES]) console.lives = facts[FIRST_LIVES];
        else if (facts[FALLING]) console.lives -= console.watched == ((watched + 1) & 255);
        else if (!console.kept && (first || !agree(KEEP) || (facts[KEEP_ONE] && sum(LIVES) != console.lives - 1)))
            console.lives = sum(LIVES);
        console.watched = watched;
        return points;
    }

    CUDA_CALLABLE APART void reset() {
        const u8* more = made.more_ram + 128 * (console.boots % made.number_of_more);
        for (i32 k = 0; k < 128; k++) console.more_ram[k] = more[k];
        console.reset(made.timers[console.boots % made.number_of_timers]);
        for (i32 k = 0; k < 2 * facts[ROWS] * Tia::WIDTH; k++) screens[k] = 0;  // both pictures
        console.boots++;
        console.resistance = in_the_middle();
        whole = 0;
    }

    CUDA_CALLABLE i32 frames_of_start() const {
        if (console.boots == FIRST_BOOT) return IDLE_FRAMES;
        return IDLE_FRAMES + facts[loading ? LOAD_FRAMES : START_FRAMES];
    }

    // Play frame `k` of a start: the console is reset, waits, and its switches are pressed.
    CUDA_CALLABLE void frame_of_start(i32 k) {
        if (!k) reset();
        const i32* pressed = made.script + 2 * ((loading ? 0 : facts[LOAD_FRAMES]) + k - IDLE_FRAMES);
        if (k < IDLE_FRAMES) frame(0, 0x3f);
        else frame(pressed[0], pressed[1]);
        if (console.boots == FIRST_BOOT || k + 1 < frames_of_start()) return;
        console.frames = facts[FIRST_FRAME];
        count(true);
    }

    CUDA_CALLABLE void start() {
        i32 k = 0;
        do frame_of_start(k);
        while (++k < frames_of_start());
    }

    // Insert the cartridge, switch the console on and start the game.
    CUDA_CALLABLE void load() {
        for (i32 k = 0; k < 128; k++) console.ram[k] = made.ram[k];
        console.scheme = facts[CARTRIDGE], console.superchip = facts[SUPERCHIP];
        console.tia.no_comb = (u8)facts[NO_COMB], console.pal = facts[PAL];
        console.tia.parity = 0;
        console.dpc.switch_on();
        console.boots = console.turn = 0;
        console.limit = FIRST_LIMIT;
        loading = true;
        start();
        console.limit = facts[PAL] ? PAL_LIMIT : FIRST_LIMIT;
        console.dpc.shift(), console.dpc.shift();  // two resets in ALE, each of which reads the start address
        start();
        loading = false;
    }
};
