"""The console as Warp compiles it, from one source, for CPUs and for CUDA."""

# mypy: ignore-errors
# Annotations are what Warp compiles, so they are no strings.

from pathlib import Path

import warp as wp

wp.config.log_level = wp.LOG_ERROR  # no banner in what a command prints

PARTS = ("bits", "tia", "console", "cpu", "fast", "game", "entry")
BODY = "\n".join((Path(__file__).parent / "native" / f"{part}.h").read_text() for part in PARTS)
SIZE, LOAD, START, PLAY = range(4)

wp.set_module_options({"enable_backward": False})


@wp.func_native(BODY)
def emulate(
    order: int,
    i: int,
    state: wp.array2d(dtype=wp.uint8),
    screens: wp.array4d(dtype=wp.uint8),
    rom: wp.array(dtype=wp.uint8),
    facts: wp.array(dtype=int),
    tables: wp.array2d(dtype=int),
    script: wp.array(dtype=int),
    timers: wp.array(dtype=int),
    memory: wp.array(dtype=wp.uint8),
    mask: wp.array(dtype=wp.bool),
    actions: wp.array(dtype=int),
    count: int,
    seen: int,
) -> int: ...


@wp.kernel
def run(
    order: int,
    state: wp.array2d(dtype=wp.uint8),
    screens: wp.array4d(dtype=wp.uint8),
    rom: wp.array(dtype=wp.uint8),
    facts: wp.array(dtype=int),
    tables: wp.array2d(dtype=int),
    script: wp.array(dtype=int),
    timers: wp.array(dtype=int),
    memory: wp.array(dtype=wp.uint8),
    mask: wp.array(dtype=wp.bool),
    actions: wp.array(dtype=int),
    count: int,
    seen: int,
    answers: wp.array(dtype=int),
):
    i = wp.tid()
    answer = emulate(order, i, state, screens, rom, facts, tables, script, timers, memory, mask, actions, count, seen)
    if order == SIZE or order == PLAY:  # noqa: SIM109  what Warp can compile
        answers[i] = answer
