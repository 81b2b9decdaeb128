"""Compile games ahead: ``python -m atari_warp.compile pong breakout``, or ``all``.

Options, with their defaults:
  jobs=1  processes that compile at once.

Games that are compiled already are skipped. The exit status is 1 if a game cannot be compiled.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np
import warp as wp

from atari_warp import kernels
from atari_warp.command_line import exit_with, parse_options
from atari_warp.emulator import Emulator
from atari_warp.games import ACTIONS, EmulatorError, Game, find_game, known_games, read_rom
from atari_warp.kernel_cache import build, cache_folders, module_entry
from atari_warp.rom_compiler import rom_code
from atari_warp.translation import (
    base_kernels,
    compile_in_child,
    kernel_name,
    load_kernels,
    stop_children,
    translation_entry,
)

OPTIONS: dict[str, str | int] = {"jobs": 1}
NICENESS = 10  # of a child that compiles while games are played

# Tracing a ROM: consoles, steps a round, frames a step. Rounds end when code grows too slowly or is large: Solaris with
# all its 4,462 instructions is 15% slower than with the 3,731 of its first round.
TRACE_ENVS, TRACE_STEPS, TRACE_SKIP = 8, 300, 4
MAX_TRACE_ROUNDS, MIN_TRACE_GROWTH, LARGE_TRACE = 6, 1.02, 3000


def trace_rom(game: Game, path: Path | None) -> np.ndarray:
    """Instructions of a ROM that are executed under random actions, ``(bytes,) uint8``; see ``Console::trace``."""
    draws = np.random.default_rng(0)
    emulator = Emulator(game, TRACE_ENVS, rom=path, trace=True)
    known, seen = 0, 1
    for _ in range(MAX_TRACE_ROUNDS):
        if seen <= MIN_TRACE_GROWTH * known or seen > LARGE_TRACE:
            break
        for _ in range(TRACE_STEPS):
            emulator.step(draws.integers(len(ACTIONS), size=TRACE_ENVS), TRACE_SKIP, 0)
            if emulator.terminated.any():
                emulator.reset(emulator.terminated)
        known, seen = seen, int(np.count_nonzero(emulator.trace()))
    return emulator.trace()


def build_game(game: Game, path: Path | None, folder: Path) -> None:
    """Compile the code of a game into ``folder``. The trace of its ROM is kept there, too."""
    rom = read_rom(game, path)
    entry, traced = translation_entry(game, rom), translation_entry(game, rom, ".trace")

    def kernel() -> wp.Kernel:
        content = traced.read(folder)
        if content is None:
            content = trace_rom(game, path).tobytes()
            traced.write(folder, content)
        return kernels.run_with(rom_code(game, rom, np.frombuffer(content, np.uint8)), kernel_name(entry))

    build(entry, kernel, folder)


def build_kernel(kernel: wp.Kernel, folder: Path) -> None:
    """Compile the module of a kernel that all games use into ``folder``."""
    build(module_entry(kernel), lambda: kernel, folder)


def child() -> None:
    """Compile the task that a parent writes to the standard input, and exit; also when the parent is gone."""
    cache, folder, task, in_background = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # Warp's compiler aborts on a full disk
    if in_background:
        os.nice(NICENESS)
        with contextlib.suppress(OSError):  # where Linux groups processes, niceness counts within a session only
            Path("/proc/self/autogroup").write_text(str(NICENESS))
    wp.config.kernel_cache_dir = cache
    try:
        if task is None:
            for kernel in base_kernels():
                build_kernel(kernel, folder)
        else:
            game, path = task
            build_game(game, path, folder)
    except Exception as error:
        os.write(2, f"ERROR: {error}".replace("\n", " ").encode())
        os._exit(1)
    os._exit(0)  # without waiting for the thread


def _exit_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        options = parse_options([each for each in given if "=" in each or each.startswith("-")], OPTIONS, __doc__)
        names = [each for each in given if "=" not in each]
        if not names:
            raise EmulatorError("game: none is given. Name games such as pong, or all.")
        games = list(known_games().values()) if names == ["all"] else list(map(find_game, dict.fromkeys(names)))
        load_kernels()
    except EmulatorError as error:
        print(error, file=sys.stderr)
        return 2
    failed = 0
    with ThreadPoolExecutor(int(options["jobs"])) as pool:
        try:
            begun = {pool.submit(_compile, game): game.name for game in games}
            for done, future in enumerate(as_completed(begun), 1):
                try:
                    outcome = future.result()
                except EmulatorError as error:
                    outcome, failed = str(error), 1
                print(f"{begun[future]}, {done} of {len(games)}: {outcome}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            stop_children()
            raise
    return failed


def _compile(game: Game) -> str:
    """Compile a game in a child process, and return how that went."""
    begin, rom = time.monotonic(), read_rom(game)
    entry = translation_entry(game, rom)
    if any(entry.read(folder) is not None for folder in cache_folders()):
        return "compiled before"
    compile_in_child([entry], (game, None))
    return f"compiled in {time.monotonic() - begin:.0f} s"


if __name__ == "__main__":
    exit_with(main)
