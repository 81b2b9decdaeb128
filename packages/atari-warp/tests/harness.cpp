// Console without Warp, for the sanitizers of a compiler: plays some frames of random bytes as cartridges. Each array of
// the emulator is an array of exactly its size here.
//
// usage: harness FIRST LAST: seeds of the cartridges.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#define CUDA_CALLABLE

static void play(unsigned seed) {
#include "bits.h"
#include "tia.h"
#include "tia_registers.h"
#include "dpc.h"
#include "console.h"
#include "cpu.h"
#include "fast.h"
#include "game.h"
    std::mt19937 draws(seed);
    const i32 sizes[] = {4096, 8192, 16384, 8192, 8192, 10495}, scheme = (i32)(seed % 6), rows = 210;
    std::vector<u8> rom((size_t)sizes[scheme]), memory(128 * 9), screens((size_t)(3 * rows * Tia::WIDTH));
    for (u8& byte : rom) byte = (u8)draws();
    if (seed % 3)  // without opcodes that stop the processor most programs run longer
        for (u8& byte : rom)
            if ((byte & 0x1f) == 0x12) byte = 0x85;
    for (u8& byte : memory) byte = (u8)draws();
    std::vector<i32> facts(FACTS), tables(256), timers(8), script(2);
    for (i32& timer : timers) timer = (i32)(draws() & 0xff);
    facts[CARTRIDGE] = scheme, facts[SUPERCHIP] = scheme == 1 || scheme == 2 ? (i32)(draws() & 1) : 0;
    facts[PAL] = (i32)(draws() & 1), facts[FIRST_LINE] = 34, facts[ROWS] = rows;
    facts[PADDLE] = -1, facts[OTHER_PADDLES] = -1;
    auto console = std::make_unique<Console>();
    std::memset((void*)console.get(), (int)(draws() & 0xff), sizeof(Console));
    std::vector<u8> trace(rom.size());
    console->rom = rom.data();
    console->trace = seed % 5 ? nullptr : trace.data();
    Made made = {memory.data(), memory.data() + 128, timers.data(), script.data(), (i32)timers.size(), 8};
    Player player = {*console, made, facts.data(), tables.data(), screens.data(), 0, 0, false};
    for (i32 k = 0; k < 128; k++) console->ram[k] = made.ram[k], console->more_ram[k] = made.more_ram[k];
    console->scheme = facts[CARTRIDGE], console->superchip = facts[SUPERCHIP];
    console->tia.top = (i32)(draws() % 3) * 40, console->tia.bottom = seed & 1 ? 1 << 30 : 200;  // rows of a crop
    console->tia.no_comb = 0, console->pal = facts[PAL], console->tia.parity = 0, console->turn = 0;
    console->limit = facts[PAL] ? PAL_LIMIT : FIRST_LIMIT;
    console->dpc.switch_on();
    console->reset(timers[0]);
    for (i32 k = 0; k < 3; k++) player.frame((i32)(draws() % 20) - 1, 0x3f);
}

int main(int, char** words) {
    for (unsigned seed = (unsigned)std::atoi(words[1]); seed < (unsigned)std::atoi(words[2]); seed++) play(seed);
    std::puts("done");
}
