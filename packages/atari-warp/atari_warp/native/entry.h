// The body of the native function, for game `i` of many. Those from `envs` on have no agent: they start, for agents
// whose games have ended to go on with.

struct Seat {
    Console console;
    Agent agent;
    i32 thorough;  // steps to come of which all frames are drawn
};

enum { LASTING = 8 };  // such steps, after one that showed what was around a frame
enum { SIZE, LOAD, START, PLAY, BEGIN, STEP };
i32* answer = &wp::index(answers, i, 0);
if (order == SIZE) {
    answer[0] = (i32)sizeof(Seat);
    return;
}
const bool plays = order == BEGIN || order == STEP;  // an agent
const bool spare = i >= envs;
if (spare && !plays) return;
if ((order == LOAD || order == START) && !wp::index(mask, i)) return;
wp::uint8* stored = &wp::index(state, i, 0);
if (spare && order == STEP && ((Seat*)stored)->agent.ready) return;
#ifdef __CUDA_ARCH__
const Seat& before = *(Seat*)stored;
Seat seat = before;  // in memory of the thread's own, which neighbours read side by side
#else
const Seat before = *(Seat*)stored;
Seat& seat = *(Seat*)stored;
#endif
Console& console = seat.console;
console.rom = &wp::index(rom, 0);
console.trace = trace.shape.dims[0] ? &wp::index(trace, 0) : nullptr;
const wp::uint8* memories = &wp::index(memory, 0);
Made made = {memories, memories + 128, &wp::index(timers, 0), &wp::index(script, 0), (i32)timers.shape.dims[0], (i32)memory.shape.dims[0] / 128 - 1};
Player player = {console, made, &wp::index(facts, 0), &wp::index(tables, 0, 0), &wp::index(screens, i, 0, 0, 0)};
Hands hands = {player, console, seat.agent, &wp::index(stages, 0)};
bool around = false;
for (bool thorough = before.thorough || (order == STEP && (spare || hands.sees_all()));; thorough = true) {
    console.tia.top = plays ? hands.stages[TOP] : 0;
    console.tia.bottom = plays ? hands.stages[BOTTOM] : player.facts[ROWS];
    player.missed = player.whole = 0, player.loading = false;
    i32 started = order == BEGIN ? Console::NEVER : player.frames_of_start() + (order == LOAD ? IDLE_FRAMES : 0);
    player.unseen = thorough ? 0 : order == PLAY ? frames - seen : started - 2;
    if (order == LOAD) player.load();
    else if (order == START) player.start();
    else if (order == PLAY) {
        answer[POINTS] = 0;
        for (i32 played = 0; played < frames && !console.over; played++) {
            player.frame(player.legal(wp::index(actions, i)), 0x3f);
            answer[POINTS] += player.count();
        }
    } else if (order == STEP && spare) hands.prepare(answer);
    else if (order == STEP) hands.step(wp::index(actions, i), thorough, answer);
    else {
        player.load();
        seat.agent.seed = spare ? ~wp::index(seeds, i - envs) : wp::index(seeds, i), seat.agent.drawn = 0;
        if (spare) hands.plan_start();
        else hands.start(thorough), hands.begin(answer);
    }
    around = around || player.missed & Player::AROUND;
    // What should have been drawn is drawn at a second try, from the same state.
    if (thorough || !player.missed || (order == PLAY && !seen)) break;
    seat = before;
    console.rom = &wp::index(rom, 0);
    console.trace = nullptr;
}
if (!plays) {
    answer[REWARD] = answer[POINTS], answer[LEFT] = console.lives;
    answer[GAME_OVER] = answer[TERMINATED] = console.over;
    answer[OUT_OF_TIME] = answer[TRUNCATED] = 0;
    answer[STARTS] = order != PLAY;
}
// A game that showed what was around a frame is likely to again. A start says nothing of it, if its frames drew both
// pictures anew.
const bool starts = order == STEP ? before.agent.ended : order != PLAY;
if (spare || (starts && player.whole == 3)) seat.thorough = 0;
else if (around) seat.thorough = LASTING;
else if (seat.thorough) seat.thorough--;
console.tia.picture = nullptr;  // addresses are not part of a state that is saved
console.rom = nullptr;
console.trace = nullptr;
#ifdef __CUDA_ARCH__
*(Seat*)stored = seat;
#endif
