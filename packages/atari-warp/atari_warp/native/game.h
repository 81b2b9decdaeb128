// What a game is to a player: its start, its inputs, and score, lives and end as its memory tells them.

// The facts of a game, as the host gives them: `facts` of Game in games.py, in the same order.
enum { CARTRIDGE, SUPERCHIP, NO_COMB, PAL, FIRST_LINE, ROWS, SWAPPED, PADDLE, OTHER_PADDLES, PADDLE_MOST, LEGAL, LOAD_FRAMES, START_FRAMES, FIRST_FRAME, LOAD_SWITCHES, SWITCHES, WRAP, LEAST, MOST, WATCHED, FIRST_LIVES, FALLING, KEEP_ONE, LASTS, WHOLE, LIVES_AT_END, TERMS, FACTS };
// Terms of a game's rules follow, four numbers each: what for, a byte of the memory, its table, and for an end which of
// the ways to end it belongs to, that all its terms have to agree on. A byte of number EARLIER is the one that is
// watched, as it was a frame ago. While all terms for KEEP agree, lives stay as they are, or, with KEEP_ONE, only the
// loss of one is not seen; and so they do until all terms for UNTIL have agreed. Points of INSTEAD count in place of
// others, at a frame that makes any, and those of FINAL at the end, of one way to it or of ANY; those of MORE are added
// there. While all terms for AGAIN agree, a frame brings what the one before brought, and while those for STILL do,
// that alone, and all else stays. An end has to hold for LASTS frames, and counts only if the terms for TOTAL sum up
// to WHOLE. Each set of bytes for SAME, numbered as ways are, makes a point while they are equal. With terms for
// STROKES, shown over all holes while none for PAR is, points are par less the strokes of a hole, when the watched
// byte, which is its number, changes. Number SCORED stands for the score, and FELL for 1 where it fell; a
// Superchip's bytes begin at CHIP.
enum { SCORE, LIVES, OVER, KEEP, INSTEAD, FINAL, AGAIN, TOTAL, SAME, MORE, PAR, STROKES, UNTIL, STILL };
enum { TERM = 4, ANY = -1, NONE = -1 };
enum { EARLIER = 128, SCORED, FELL, CHIP = 256 };
enum { FIRST_LIMIT = 290, PAL_LIMIT = 342, IDLE_FRAMES = 60, FIRST_BOOT = 1 };
enum { PADDLE_SPEED = 23000, PADDLE_LEAST = 27450 };

// What all consoles have in common when they are switched on, and what starts the game. For each time that a console
// is reset there are a value of the timer and the bytes of a Superchip, of 128 each.
struct Made {
    const u8 *ram, *more_ram;
    const i32 *timers, *script;  // the frames of a start, of the first one and of all others: action and switches
    i32 number_of_timers, number_of_more;
};

struct Player {
    Console& console;
    const Made& made;
    const i32* facts;
    const i32* tables;  // (tables, 256)
    u8* screens;        // pictures: two that frames are drawn to in turn, and one that is kept
    i32 unseen;         // frames to play before those that are drawn
    i32 missed;         // what was not drawn, and should have been
    i32 whole;          // of which pictures all was drawn: a bit for each
    bool loading;       // the first start of a game is its usual one

    // A drawn frame that ends early shows below it what was drawn there before, and one that was begun before it was
    // drawn shows that above; and the end of a game is looked at.
    enum { AROUND = 1, END = 2 };

    // Bits of the directions and FIRE that an action presses, as ALE numbers actions.
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

    // The action, or NOOP if this game takes no such action.
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

    // Whether term `k` is for it; those for FINAL and MORE are of one way to end, or of any.
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

    // Whether there are terms for it, and all of them agree.
    CUDA_CALLABLE bool agree(i32 purpose) const {
        bool any = false;
        for (i32 k = 0; k < facts[TERMS]; k++) {
            if (facts[FACTS + TERM * k] != purpose) continue;
            if (!looked_up(k)) return false;
            any = true;
        }
        return any;
    }

    // The way to end that holds, or NONE.
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

    // What a new number of a hole brings. A counter of strokes that falls is taken to have started anew from nothing.
    CUDA_CALLABLE i32 of_last_hole(i32 hole) {
        i32 points = 0, par = sum(PAR), shown = sum(STROKES);
        if (hole != console.watched && console.strokes) points = console.par - console.strokes, console.strokes = 0;
        if (par) console.par = par;
        else console.strokes += shown - (shown < console.shown ? 0 : console.shown), console.shown = shown;
        return points;
    }

    // Bring score, lives and end up to date; the points that were made since the last time. `first`: of a game.
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

    // The game starts anew: as when the console is reset, waits, and somebody presses its switches. Here, frame `k` of
    // this.
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

    // The cartridge is put in, the console switched on, and the game started.
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
        console.dpc.shift(), console.dpc.shift();  // here ALE resets the processor twice, which reads where to begin
        start();
        loading = false;
    }
};
