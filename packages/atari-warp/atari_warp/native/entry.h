// Body of the native function, for game `i`. Games from `envs` on are the reset pool: they have no agent, and start
// games for agents whose games have ended.

struct EnvState {
    Console console;
    Agent agent;
    i32 thorough;  // remaining steps of which all frames are drawn
};

enum { LASTING = 8 };  // such steps after a frame that showed older pixels
// Those of agents: BEGIN switches consoles on, RESTART starts games or lives, and STEP plays.
enum { SIZE, LOAD, START, PLAY, BEGIN, RESTART, STEP };
i32* answer = &wp::index(answers, i, 0);
if (order == SIZE) {
    answer[0] = (i32)sizeof(EnvState), answer[1] = (i32)(sizeof(Console) + 7) & ~7;  // the agent begins there
    return;
}
const bool plays = order >= BEGIN;  // for an agent
// Without an agent the settings are the chance of a repeated action, times 2**31, and the frames of a game.
const i32 limit = plays ? 0 : wp::index(settings, 1);
const bool in_pool = i >= envs;
if (in_pool && (!plays || order == RESTART || (order == BEGIN && !frames))) return;  // BEGIN counts the pool in `frames`
if (plays && !in_pool) answer[LEFT_OUT] = !wp::index(mask, i);
if (order != PLAY && !in_pool && !wp::index(mask, i)) return;
wp::uint8* stored = &wp::index(state, i, 0);
if (in_pool && order == STEP && ((EnvState*)stored)->agent.ready) return;
#ifdef __CUDA_ARCH__
const EnvState& before = *(EnvState*)stored;
EnvState env = before;  // in memory of the thread, which the GPU interleaves
#else
const EnvState before = *(EnvState*)stored;
EnvState& env = *(EnvState*)stored;
#endif
Console& console = env.console;
console.rom = &wp::index(rom, 0);
console.trace = trace.shape.dims[0] ? &wp::index(trace, 0) : nullptr;
const wp::uint8* memories = &wp::index(memory, 0);
Made made = {memories, memories + 128, &wp::index(timers, 0), &wp::index(script, 0), (i32)timers.shape.dims[0], (i32)memory.shape.dims[0] / 128 - 1};
Player player = {console, made, &wp::index(facts, 0), &wp::index(tables, 0, 0), &wp::index(screens, i, 0, 0, 0)};
Environment environment = {player, console, env.agent, &wp::index(settings, 0)};
bool around = false;
const bool sees_all = order >= RESTART ? in_pool || environment.sees_all() : order == PLAY && frames == drawn;
for (bool thorough = before.thorough || sees_all;; thorough = true) {
    console.tia.top = plays ? environment.settings[TOP] : 0;
    console.tia.bottom = plays ? environment.settings[BOTTOM] : player.facts[ROWS];
    player.missed = player.whole = 0, player.loading = false;
    i32 started = order == BEGIN ? Console::NEVER : player.frames_of_start() + (order == LOAD ? IDLE_FRAMES : 0);
    player.unseen = thorough ? 0 : order == PLAY ? frames - drawn : started - 2;
    if (order == LOAD) env.agent.seed = wp::index(seeds, i), env.agent.drawn = 0;
    if (order == LOAD || order == START) env.agent.pressed = 0;
    if (order == LOAD) player.load();
    else if (order == START) player.start();
    else if (order == PLAY) {
        const i32 sticky = wp::index(settings, 0);
        answer[POINTS] = 0;
        for (i32 played = 0; played < frames && !console.over && console.frames < limit; played++) {
            const bool repeats = sticky && (i32)(env.agent.draw() >> 1) < sticky;
            if (!repeats) env.agent.pressed = wp::index(actions, i);
            player.frame(player.legal(env.agent.pressed), 0x3f);
            answer[POINTS] += player.count();
            if (console.frames >= limit && player.unseen >= 0) player.missed |= Player::END;
        }
    } else if (order == STEP && in_pool) environment.prepare(answer);
    else if (order == STEP) environment.step(wp::index(actions, i), thorough, answer);
    else if (order == RESTART) environment.restart(thorough, answer);
    else {
        player.load();
        env.agent.seed = in_pool ? ~wp::index(seeds, i - envs) : wp::index(seeds, i), env.agent.drawn = 0;
        env.agent.total = player.facts[FIRST_FRAME];
        if (in_pool) environment.plan_start(), answer[READY] = 0;
        else environment.start(thorough), environment.begin(answer);
    }
    around = around || player.missed & Player::AROUND;
    // If frames should have been drawn, play again from the same state and draw all of them.
    if (thorough || !player.missed || (order == PLAY && !drawn)) break;
    env = before;
    console.rom = &wp::index(rom, 0);
    console.trace = nullptr;
}
if (!plays) {
    answer[REWARD] = answer[POINTS], answer[LEFT] = console.lives;
    answer[GAME_OVER] = answer[TERMINATED] = console.over;
    answer[OUT_OF_TIME] = answer[TRUNCATED] = console.frames >= limit;
    answer[EPISODE_START] = order != PLAY;
}
// A game that showed older pixels is likely to do so again. A start whose frames drew both pictures completely clears
// them.
const bool starts = order == STEP ? before.agent.ended : order != PLAY && !(order == RESTART && before.agent.lost);
if (in_pool || (starts && player.whole == 3)) env.thorough = 0;
else if (around) env.thorough = LASTING;
else if (env.thorough) env.thorough--;
console.tia.picture = nullptr;  // pointers are not part of a saved state
console.rom = nullptr;
console.trace = nullptr;
#ifdef __CUDA_ARCH__
*(EnvState*)stored = env;
#endif
