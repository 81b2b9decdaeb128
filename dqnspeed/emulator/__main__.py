"""How fast is it here? ``python -m dqnspeed.emulator game=pong num_envs=16 device=cpu``: frames per second of the
emulator and of ALE, in turn, so that a busy machine slows both; the medians of nine rounds, and of the ratios."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import warp as wp

from dqnspeed.emulator.emulator import Emulator
from dqnspeed.emulator.games import EmulatorError
from dqnspeed.emulator.verify import ale_action, ale_of, options_of

OPTIONS: dict[str, str | int] = {"game": "pong", "num_envs": 16, "device": "cpu"}
ROUNDS, SECONDS, SKIP = 9, 0.5, 4  # frames of an action, of which the last two are seen


def main() -> int:
    """The command; returns its exit status."""
    try:
        options = options_of(sys.argv[1:], OPTIONS)
        game, count = str(options["game"]), int(options["num_envs"])
        emulator = Emulator(game, count, str(options["device"]))
    except EmulatorError as error:
        print(error, file=sys.stderr)
        return 2
    ale = ale_of(game)
    actions = [action.value for action in ale.getMinimalActionSet()]
    drawn = wp.array(np.random.default_rng(0).choice(actions, count), dtype=int, device=emulator.device)

    def ours(seen: int) -> int:
        emulator.step(drawn, SKIP, seen)
        if (over := emulator.over()).any():  # which would stand still
            emulator.reset(wp.array(over, dtype=wp.bool, device=emulator.device))
        return SKIP * count

    def theirs() -> int:
        for _ in range(16):
            if ale.game_over():
                ale.reset_game()
            ale.act(ale_action(actions[-1]))
        return 16

    ways: dict[str, Callable[[], int]] = {
        "ALE, one console": theirs,
        f"emulator, {count} consoles, no pictures": lambda: ours(0),
        f"emulator, {count} consoles, 2 pictures of {SKIP} frames": lambda: ours(2),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, play in ways.items():
            rates[name].append(_rate(play))
    first = next(iter(rates.values()))
    print(f"{game}, {emulator.device}\n| | frames/s | median of the ratios to ALE's |\n|---|---:|---:|")
    for name, found in rates.items():
        ratio = statistics.median(rate / ale_rate for rate, ale_rate in zip(found, first, strict=True))
        print(f"| {name} | {statistics.median(found):,.0f} | {ratio:.2f} |")
    return 0


def _rate(play: Callable[[], int]) -> float:
    begin, frames = time.perf_counter(), 0
    while time.perf_counter() - begin < SECONDS:
        frames += play()
    return frames / (time.perf_counter() - begin)


if __name__ == "__main__":
    sys.exit(main())
