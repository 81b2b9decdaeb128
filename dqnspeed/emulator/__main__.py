"""How fast is it here? ``python -m dqnspeed.emulator game=pong num_envs=1,16,256 threads=1 device=cpu``.

Frames per second of ALE and of the emulator, in turn, so that a busy machine slows all: of one ALE and of its
AtariVectorEnv, and of the emulator with and without observations. The medians of nine rounds, and of the ratios.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import warp as wp

from dqnspeed.emulator.emulator import Emulator
from dqnspeed.emulator.games import EmulatorError
from dqnspeed.emulator.preprocessing import Games, Preprocessing
from dqnspeed.emulator.verify import ale_action, ale_of, options_of

OPTIONS: dict[str, str | int] = {"game": "pong", "num_envs": "1,16,256", "threads": 1, "device": "cpu"}
ROUNDS, SECONDS, SKIP, AT_ONCE = 9, 0.4, 4, 16
STAGES = "4 frames an action, the maximum of the last two, gray, 84x84"


def main() -> int:
    """The command; returns its exit status."""
    try:
        options = options_of(sys.argv[1:], OPTIONS)
        game, threads, device = str(options["game"]), int(options["threads"]), str(options["device"])
        ways: dict[str, tuple[Callable[[], int], int]] = {"ALE, one console": (_ale(game), 0)}
        ways[f"AtariVectorEnv, {AT_ONCE} games, {_threads(threads)}, observations"] = (_vector(game, threads), 1)
        for count in _counts(str(options["num_envs"])):
            where = device if device != "cpu" else _threads(min(threads, count))
            ways[f"emulator, {_games(count)}, {where}, no pictures"] = (_emulator(game, count, device, threads), 0)
            ways[f"emulator, {_games(count)}, {where}, observations"] = (_games_of(game, count, device, threads), 1)
    except EmulatorError as error:
        print(error, file=sys.stderr)
        return 2
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(ROUNDS):
        for name, (play, _) in ways.items():
            rates[name].append(_rate(play))
        print(f"\r{turn + 1} of {ROUNDS} rounds", end="\n" if turn + 1 == ROUNDS else "", file=sys.stderr, flush=True)
    references = list(rates.values())[:2]
    print(f"{game}; observations: {STAGES}\n\n| | frames/s | to ALE's of its kind |\n|---|---:|---:|")
    for name, found in rates.items():
        pairs = zip(found, references[ways[name][1]], strict=True)
        print(f"| {name} | {statistics.median(found):,.0f} | {statistics.median(a / b for a, b in pairs):.2f}x |")
    return 0


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"


def _games(count: int) -> str:
    return f"{count:,} game{'s' * (count > 1)}"


def _counts(said: str) -> list[int]:
    if not all(part.isdecimal() and int(part) for part in said.split(",")):
        raise EmulatorError(f"num_envs={said}: takes whole numbers, at least 1, with commas between them.")
    return list(map(int, said.split(",")))


def _actions(game: str) -> list[int]:
    return [action.value for action in ale_of(game).getMinimalActionSet()]


def _ale(game: str) -> Callable[[], int]:
    ale, draws = ale_of(game), np.random.default_rng(0)
    actions = [ale_action(number) for number in _actions(game)]

    def play() -> int:
        for _ in range(SKIP):
            if ale.game_over():
                ale.reset_game()
            action = actions[draws.integers(len(actions))]
            for _ in range(SKIP):
                ale.act(action)
        return SKIP * SKIP

    return play


def _vector(game: str, threads: int) -> Callable[[], int]:
    from ale_py.vector_env import AtariVectorEnv

    env = AtariVectorEnv(game, AT_ONCE, num_threads=threads, frameskip=SKIP, stack_num=1, repeat_action_probability=0.0)
    count, draws = len(_actions(game)), np.random.default_rng(0)
    env.reset(seed=0)

    def play() -> int:
        env.step(draws.integers(count, size=AT_ONCE))
        return SKIP * AT_ONCE

    return play


def _emulator(game: str, count: int, device: str, threads: int) -> Callable[[], int]:
    emulator, actions, draws = Emulator(game, count, device, threads=threads), _actions(game), np.random.default_rng(0)

    def play() -> int:
        emulator.step(draws.choice(actions, count), SKIP, 0)
        if emulator.game.rules.terms and (over := emulator.over()).any():  # which would stand still
            emulator.reset(over)
        wp.synchronize_device(emulator.device)
        return SKIP * count

    return play


def _games_of(game: str, count: int, device: str, threads: int) -> Callable[[], int]:
    actions, draws = _actions(game), np.random.default_rng(0)
    games = Games(game, count, device, Preprocessing(actions=tuple(actions)), threads=threads)
    games.begin(range(count))

    def play() -> int:
        games.act(draws.integers(len(actions), size=count))
        games.outcome()
        return SKIP * count

    return play


def _rate(play: Callable[[], int]) -> float:
    begin, frames = time.perf_counter(), 0
    while time.perf_counter() - begin < SECONDS:
        frames += play()
    return frames / (time.perf_counter() - begin)


if __name__ == "__main__":
    sys.exit(main())
