// The body of the native function, for game `i` of many.

enum { SIZE, LOAD, START, PLAY };
if (order == SIZE) return (int)sizeof(Console);
const i32* of_game = &wp::index(facts, 0);
wp::uint8* stored = &wp::index(state, i, 0);
#ifdef __CUDA_ARCH__
Console console = *(Console*)stored;  // in memory of the thread's own, which neighbours read side by side
#else
Console& console = *(Console*)stored;
#endif
console.rom = &wp::index(rom, 0);
Player player = {console, of_game, &wp::index(tables, 0, 0), &wp::index(screens, i, 0, 0, 0)};
i32 points = 0;
if (order == PLAY) {
    for (i32 played = 0; played < count && !console.over; played++) {
        player.frame(wp::index(actions, i), 0x3f, played >= count - seen);
        points += player.count();
    }
} else if (wp::index(mask, i)) {
    const i32 *by_boot = &wp::index(timers, 0), *first = &wp::index(script, 0);
    if (order == LOAD) player.load(&wp::index(memory, 0), &wp::index(memory, 128), by_boot, (i32)timers.shape.dims[0], first);
    else player.start(&wp::index(memory, 128), by_boot, (i32)timers.shape.dims[0], first, true);
}
console.tia.picture = nullptr;  // addresses are not part of a state that is saved
console.rom = nullptr;
#ifdef __CUDA_ARCH__
*(Console*)stored = console;
#endif
return points;
