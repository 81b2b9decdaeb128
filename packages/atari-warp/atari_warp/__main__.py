"""How fast is it here? ``python -m atari_warp game=pong num_envs=1,16,256 threads=1 device=cpu``.

Frames per second of ALE and of the emulator, in turn, so that a busy machine slows all: of one ALE and of its
AtariVectorEnv, and of the emulator with and without observations. The medians of nine rounds, and of the ratios. Of
several games (``game=pong,breakout`` or ``all``) only what makes observations is measured, with the last of
``num_envs``, a line for each. With ``translate=no`` games' code is not compiled first; ``spares=N`` consoles more play
starts ahead where observations are made, usually a quarter of ``num_envs`` on a GPU and none on a CPU.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import warp as wp

from atari_warp.emulator import Emulator
from atari_warp.games import EmulatorError, check, find
from atari_warp.preprocessing import Games, Preprocessing
from atari_warp.verify import ale_action, ale_of, ends, names_of, options_of

OPTIONS: dict[str, str | int] = {
    "game": "pong", "num_envs": "1,16,256", "threads": 1, "device": "cpu", "translate": "yes", "spares": "usual",
}  # fmt: skip
ROUNDS, SECONDS, SKIP, AT_ONCE = 9, 0.4, 4, 16
STAGES = "4 frames an action, the maximum of the last two, gray, 84x84"


How = dict[str, Any]  # arguments of an emulator
Ways = dict[str, tuple[Callable[[], int], int]]  # what plays some frames, and which of them it is compared with


def main() -> int:
    """The command; returns its exit status."""
    try:
        options = options_of(None, OPTIONS, __doc__)
        names = names_of(options)
        for name in names:
            check(name)
        counts, threads, device = _counts(str(options["num_envs"])), int(options["threads"]), str(options["device"])
        how: How = {"device": device, "threads": threads, "translate": options["translate"] == "yes"}
        how["spares"] = _spares(str(options["spares"]))
        if len(names) == 1:
            _one_game(names[0], counts, how)
        else:
            _many_games(names, counts[-1], how)
    except EmulatorError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _one_game(game: str, counts: Sequence[int], how: How) -> None:
    threads, device = how["threads"], how["device"]
    ways: Ways = {"ALE, one console": (_ale(game), 0)}
    ways[f"AtariVectorEnv, {AT_ONCE} games, {_threads(threads)}, observations"] = (_vector(game, threads), 1)
    for count in counts:
        where = device if device != "cpu" else _threads(min(threads, count))
        ways[f"emulator, {_games(count)}, {where}, no pictures"] = (_emulator(game, count, how), 0)
        ways[f"emulator, {_games(count)}, {where}, observations"] = (_games_of(game, count, how), 1)
    rates = _rates(ways, game)
    print(f"{game}; observations: {STAGES}\n\n| | frames/s | to ALE's of its kind |\n|---|---:|---:|")
    for name, (rate, ratio) in rates.items():
        print(f"| {name} | {rate:,.0f} | {ratio:.2f}x |")


def _many_games(games: Sequence[str], count: int, how: How) -> None:
    threads, device = how["threads"], how["device"]
    where = device if device != "cpu" else _threads(threads)
    print(f"{STAGES}; {where}\n\n| game | AtariVectorEnv, {AT_ONCE} games | emulator, {_games(count)} | |")
    print("|---|---:|---:|---:|", flush=True)
    for game in games:
        ways: Ways = {"theirs": (_vector(game, threads), 0), "ours": (_games_of(game, count, how), 0)}
        (theirs, _), (ours, ratio) = _rates(ways, game).values()
        print(f"| {game} | {theirs:,.0f} | {ours:,.0f} | {ratio:.2f}x |", flush=True)


def _rates(ways: Ways, label: str) -> dict[str, tuple[float, float]]:
    """Frames per second of each, and its ratio to what it is compared with: medians over the rounds."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(ROUNDS):
        for name, (play, _) in ways.items():
            rates[name].append(_rate(play))
        end = "\n" if turn + 1 == ROUNDS else ""
        print(f"\r{label}: {turn + 1} of {ROUNDS} rounds", end=end, file=sys.stderr, flush=True)
    found, each = dict[str, tuple[float, float]](), list(rates.values())
    for name, mine in rates.items():
        pairs = zip(mine, each[ways[name][1]], strict=True)
        found[name] = statistics.median(mine), statistics.median(a / b for a, b in pairs)
    return found


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"


def _games(count: int) -> str:
    return f"{count:,} game{'s' * (count > 1)}"


def _counts(said: str) -> list[int]:
    if not all(part.isdecimal() and int(part) for part in said.split(",")):
        raise EmulatorError(f"num_envs={said}: takes whole numbers, at least 1, with commas between them.")
    return list(map(int, said.split(",")))


def _spares(said: str) -> int | None:
    if said != "usual" and not said.isdecimal():
        raise EmulatorError(f"spares={said}: takes a whole number, or usual.")
    return None if said == "usual" else int(said)


def _actions(game: str) -> list[int]:
    return list(find(game).minimal)


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


def _emulator(game: str, count: int, how: How) -> Callable[[], int]:
    emulator, actions, draws = Emulator(game, count, **(how | {"spares": 0})), _actions(game), np.random.default_rng(0)

    def play() -> int:
        emulator.step(draws.choice(actions, count), SKIP, 0)
        if emulator.terminated.numpy().any():  # which would stand still
            emulator.reset(emulator.terminated)
        wp.synchronize_device(emulator.device)
        return SKIP * count

    return play


def _games_of(game: str, count: int, how: How) -> Callable[[], int]:
    actions, draws = _actions(game), np.random.default_rng(0)
    games = Games(game, count, preprocessing=Preprocessing(actions=tuple(actions)), **how)
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
    ends(main)
