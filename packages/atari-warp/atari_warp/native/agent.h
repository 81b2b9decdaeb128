// Environment of an agent: actions last for some frames, starts differ, and pictures become observations.

// Numbers from the host, in the order of `Preprocessing.settings` in preprocessing.py, followed by ALE's numbers of the
// actions.
enum { SKIP, POOL, MOST_NOOPS, PRESS_FIRE, FIRE_FIRST, STICKY, MOST_FRAMES, COUNT_START, TAP, TOP, BOTTOM, LOST_LIFE, REPEAT_LAST, CLIP, HELD, ACTIONS, SETTINGS };
// Effects of a lost life: none, the end of the episode is reported, the game starts again, or it continues with a new
// episode.
enum { NOTHING, REPORT, RESTART_GAME, CONTINUE };
// Results: of the game; of the episode, which may be a life, with the agent's reward; whether the next step starts a
// game; ALE's frame numbers; the two pictures whose maximum is the observation, either of which may be the previous
// observation; and whether the last order left this game out.
enum { POINTS, GAME_OVER, OUT_OF_TIME, LEFT, REWARD, TERMINATED, TRUNCATED, EPISODE_START, ENDED, EPISODE_FRAMES, FRAMES, FIRST, SECOND, LEFT_OUT };
enum { READY = EPISODE_START };  // in the reset pool: the next game has started
enum { KEPT = 2, BEFORE = -1 };

struct Agent {
    u64 seed;
    u32 drawn;
    i32 pressed;  // action of the last frame, with ALE's number
    i32 ended;    // the next step starts another game
    i32 lost;     // a life was lost: the next step starts another episode of this game
    i32 lives;    // after the last step
    i32 owed;     // points of NOOPs and FIRE at the start, which belong to the first step
    i32 total;    // frames of all games since the console was switched on
    i32 before;   // frames of this game that the limit does not count
    i32 ready;    // another game has started, and waits for an agent
    i32 at;       // played frames of that start, without NOOPs and FIRE
    i32 noops;    // NOOPs of the start that remain
    i32 fires;    // whether FIRE remains

    // Counter-based random numbers; Steele, Lea and Flood 2014, figure 16.
    CUDA_CALLABLE u32 draw() {
        u64 z = seed + ++drawn * 0x9e3779b97f4a7c15ull;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ z >> 27) * 0x94d049bb133111ebull;
        return (u32)((z ^ z >> 31) >> 32);
    }
};

struct Environment {
    Player& player;
    Console& console;
    Agent& agent;
    const i32* settings;

    // Play a frame. Presses for the agent are exempt from sticky actions.
    CUDA_CALLABLE i32 frame(i32 action, bool for_agent) {
        if (!for_agent && settings[STICKY] && (i32)(agent.draw() >> 1) < settings[STICKY]) action = agent.pressed;
        agent.pressed = action;
        player.frame(player.legal(action), 0x3f);
        agent.total++;
        i32 points = player.count();
        if ((truncated() || must_restart()) && player.unseen >= 0) player.missed |= Player::END;
        return points;
    }

    CUDA_CALLABLE bool must_restart() const { return settings[LOST_LIFE] == RESTART_GAME && console.lives < agent.lives; }
    CUDA_CALLABLE bool truncated() const { return console.frames - agent.before >= settings[MOST_FRAMES]; }
    CUDA_CALLABLE bool stopped() const { return console.over || truncated(); }

    // FIRE that comes first is one of the frames.
    CUDA_CALLABLE i32 noops() {
        if (!settings[MOST_NOOPS]) return 0;
        i32 drawn = (i32)(agent.draw() % (u32)settings[MOST_NOOPS]);
        return !settings[FIRE_FIRST] ? 1 + drawn : drawn && settings[PRESS_FIRE] ? drawn - 1 : drawn;
    }

    CUDA_CALLABLE void plan_start() {
        agent.noops = noops(), agent.fires = settings[PRESS_FIRE];
        agent.ended = agent.ready = agent.at = 0;
        agent.before = settings[COUNT_START] ? 0 : 1 << 30;
    }

    // Play the next frame of the planned start. If the game ends or times out meanwhile, the start begins again.
    CUDA_CALLABLE void frame_of_start() {
        if (agent.at < player.frames_of_start()) {
            if (!agent.at) agent.owed = agent.pressed = 0;
            player.frame_of_start(agent.at++);
            if (agent.at == player.frames_of_start()) agent.total += player.facts[FIRST_FRAME];
        } else {
            const bool fires = settings[FIRE_FIRST] ? agent.fires : !agent.noops;
            if (fires) agent.fires = 0;
            else agent.noops--;
            agent.owed += frame(fires, true);
            if (stopped()) agent.at = 0;
            if (stopped() && fires) agent.noops = noops();
        }
        agent.ready = agent.at == player.frames_of_start() && !agent.noops && !agent.fires;
    }

    // In the reset pool: play a step's frames of the next start, until it is ready.
    CUDA_CALLABLE void prepare(i32* answer) {
        if (agent.ended) plan_start();
        for (i32 k = 0; k < settings[SKIP] && !agent.ready; k++) frame_of_start();
        answer[READY] = agent.ready;
    }

    // Start another game at once.
    CUDA_CALLABLE void start(bool thorough) {
        plan_start();
        player.unseen = thorough ? 0 : player.frames_of_start() + agent.noops + agent.fires - 2;
        while (!agent.ready) frame_of_start();
    }

    // Hand a ready game to the agent.
    CUDA_CALLABLE void begin(i32* answer) {
        agent.ready = 0;
        if (settings[FIRE_FIRST]) agent.owed = 0;  // as ALE's vector environment drops these points
        if (!settings[COUNT_START]) agent.before = console.frames;
        answer[FIRST] = answer[SECOND] = console.turn;
        agent.lives = console.lives;
        tell(0, true, answer);
    }

    // Whether all frames of a step are drawn anyway.
    CUDA_CALLABLE bool sees_all() const { return settings[SKIP] <= settings[POOL] + 1; }

    CUDA_CALLABLE void step(i32 action, bool thorough, i32* answer) {
        if (agent.ended) start(thorough);
        if (agent.ready) return begin(answer);
        const bool starts = agent.lost, for_agent = starts || action < 0;
        if (action < 0) action = -1 - action;
        i32 number = action >= settings[ACTIONS] ? 0 : settings[SETTINGS + action];
        i32 points = agent.owed, last = settings[SKIP] - 1, k = 0, before = BEFORE;
        i32 lets_go = action < settings[HELD] || starts ? last + 1 : settings[TAP];
        if (starts) number = settings[PRESS_FIRE];  // ALE's number of FIRE is 1
        // A step with an odd number of frames may end in either picture, so the newest of both are drawn.
        player.unseen = thorough ? 0 : last - (settings[POOL] || settings[SKIP] & 1);
        agent.owed = 0;
        for (; k <= last; k++) {
            // The step is played again from the same state, so the pictures must not change.
            if (k == last && !thorough && player.missed) return;
            if (settings[POOL] && k == last) before = console.ended ? console.turn : keep();
            points += frame(k < lets_go ? number : 0, for_agent);
            if (stopped() || must_restart()) break;
        }
        if (starts && stopped()) {  // no step is left to report this end, and nothing of it was learnt from
            start(thorough);
            return begin(answer);
        }
        answer[FIRST] = answer[SECOND] = settings[POOL] || (settings[REPEAT_LAST] && k <= last) ? BEFORE : console.turn;
        if (before != BEFORE) answer[FIRST] = before;
        if (k > last) answer[SECOND] = console.turn;
        tell(points, starts, answer);
    }

    // Start another game, or go on after a lost life.
    CUDA_CALLABLE void restart(bool thorough, i32* answer) {
        if (!agent.ready && !agent.lost) agent.ended = 1;
        step(0, thorough, answer);
    }

    // Copy the newest picture: the next frame is drawn over it, below the line where it was abandoned.
    CUDA_CALLABLE i32 keep() {
        const u8* newest = player.picture(console.turn);
        u8* kept = player.picture(KEPT);
        for (i32 k = 0; k < player.facts[ROWS] * Tia::WIDTH; k++) kept[k] = newest[k];
        return KEPT;
    }

    CUDA_CALLABLE void tell(i32 points, bool starts, i32* answer) {
        const bool lost = settings[LOST_LIFE] && console.lives < agent.lives && !console.over;
        agent.ended = stopped() || (lost && settings[LOST_LIFE] == RESTART_GAME);
        agent.lost = lost && settings[LOST_LIFE] == CONTINUE;
        agent.lives = console.lives;
        answer[POINTS] = points, answer[GAME_OVER] = console.over, answer[OUT_OF_TIME] = truncated();
        answer[LEFT] = console.lives;
        answer[REWARD] = starts ? 0 : settings[CLIP] ? (points > 0) - (points < 0) : points;
        answer[TERMINATED] = !starts && (console.over || lost), answer[TRUNCATED] = !starts && truncated();
        answer[EPISODE_START] = starts, answer[ENDED] = agent.ended;
        answer[EPISODE_FRAMES] = console.frames, answer[FRAMES] = agent.total;
    }
};
