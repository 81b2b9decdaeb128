"""Measure the speed here: ``python -m atari_warp game=pong num_envs=1,16,256 threads=1 device=cpu``.

Options, with their defaults:
  game=pong          one of ALE's games, several with commas, or all.
  num_envs=1,16,256  numbers of consoles.
  threads=1          CPU threads.
  device=cpu         device of the emulator.
  compile_rom=yes    compiles games' code first, on a CPU; no interprets it.
  reset_pool=auto    consoles that start games ahead, where observations are made; auto: a quarter of num_envs on a
                     GPU, none on a CPU.

Prints frames per second of one ALE, of ALE's AtariVectorEnv, and of the emulator with and without observations. All are
measured in turn, so that a busy machine slows them alike; shown are medians of nine rounds, and of their ratios. With
several games only observations are measured, for the last number of num_envs.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import warp as wp

from atari_warp.ale import ale_action, make_ale
from atari_warp.command_line import chosen_games, exit_with, parse_options
from atari_warp.console_batch import ConsoleBatch
from atari_warp.emulator import Emulator
from atari_warp.games import EmulatorError, check_playable, find_game
from atari_warp.preprocessing import Preprocessing

OPTIONS: dict[str, str | int] = {
    "game": "pong", "num_envs": "1,16,256", "threads": 1, "device": "cpu", "compile_rom": "yes", "reset_pool": "auto",
}  # fmt: skip
ROUNDS, ROUND_S, FRAME_SKIP, VECTOR_ENVS = 9, 0.4, 4, 16
TASK = "4 frames an action, the maximum of the last two, gray, 84x84"

Arguments = dict[str, Any]
Players = dict[str, tuple[Callable[[], int], int]]  # function that plays some frames, and the index of its baseline


def main() -> int:
    """Run the command, and return its exit status."""
    try:
        options = parse_options(None, OPTIONS, __doc__)
        names = chosen_games(options)
        for name in names:
            check_playable(name)
        counts, threads, device = _counts(str(options["num_envs"])), int(options["threads"]), str(options["device"])
        arguments: Arguments = {"device": device, "threads": threads, "compile_rom": options["compile_rom"] == "yes"}
        pool = _pool(str(options["reset_pool"]))
        if len(names) == 1:
            _one_game(names[0], counts, arguments, pool)
        else:
            _many_games(names, counts[-1], arguments, pool)
    except EmulatorError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _one_game(game: str, counts: Sequence[int], arguments: Arguments, pool: int | None) -> None:
    threads, device = arguments["threads"], arguments["device"]
    players: Players = {"ALE, one console": (_ale(game), 0)}
    players[f"AtariVectorEnv, {VECTOR_ENVS} games, {_threads(threads)}, observations"] = (_vector(game, threads), 1)
    for count in counts:
        where = device if device != "cpu" else _threads(min(threads, count))
        players[f"emulator, {_games(count)}, {where}, no pictures"] = (_emulator(game, count, arguments), 0)
        players[f"emulator, {_games(count)}, {where}, observations"] = (_batch(game, count, arguments, pool), 1)
    rates = _rates(players, game)
    print(f"{game}; observations: {TASK}\n\n| | frames/s | ratio to ALE |\n|---|---:|---:|")
    for name, (rate, ratio) in rates.items():
        print(f"| {name} | {rate:,.0f} | {ratio:.2f}x |")


def _many_games(games: Sequence[str], count: int, arguments: Arguments, pool: int | None) -> None:
    threads, device = arguments["threads"], arguments["device"]
    where = device if device != "cpu" else _threads(threads)
    print(f"{TASK}; {where}\n\n| game | AtariVectorEnv, {VECTOR_ENVS} games | emulator, {_games(count)} | |")
    print("|---|---:|---:|---:|", flush=True)
    for game in games:
        players: Players = {"theirs": (_vector(game, threads), 0), "ours": (_batch(game, count, arguments, pool), 0)}
        (theirs, _), (ours, ratio) = _rates(players, game).values()
        print(f"| {game} | {theirs:,.0f} | {ours:,.0f} | {ratio:.2f}x |", flush=True)


def _rates(players: Players, label: str) -> dict[str, tuple[float, float]]:
    """Frames per second of each player and its ratio to its baseline, as medians over the rounds."""
    rates: dict[str, list[float]] = {name: [] for name in players}
    for turn in range(ROUNDS):
        for name, (play, _) in players.items():
            rates[name].append(_rate(play))
        end = "\n" if turn + 1 == ROUNDS else ""
        print(f"\r{label}: {turn + 1} of {ROUNDS} rounds", end=end, file=sys.stderr, flush=True)
    found, each = dict[str, tuple[float, float]](), list(rates.values())
    for name, own in rates.items():
        pairs = zip(own, each[players[name][1]], strict=True)
        found[name] = statistics.median(own), statistics.median(a / b for a, b in pairs)
    return found


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"


def _games(count: int) -> str:
    return f"{count:,} game{'s' * (count > 1)}"


def _counts(text: str) -> list[int]:
    if not all(part.isdecimal() and int(part) for part in text.split(",")):
        raise EmulatorError(f"num_envs={text}: must be integers of at least 1, separated by commas.")
    return list(map(int, text.split(",")))


def _pool(text: str) -> int | None:
    if text != "auto" and not text.isdecimal():
        raise EmulatorError(f"reset_pool={text}: must be an integer of at least 0, or auto.")
    return None if text == "auto" else int(text)


def _actions(game: str) -> list[int]:
    return list(find_game(game).minimal)


def _ale(game: str) -> Callable[[], int]:
    ale, draws = make_ale(game), np.random.default_rng(0)
    actions = [ale_action(number) for number in _actions(game)]

    def play() -> int:
        for _ in range(FRAME_SKIP):
            if ale.game_over():
                ale.reset_game()
            action = actions[draws.integers(len(actions))]
            for _ in range(FRAME_SKIP):
                ale.act(action)
        return FRAME_SKIP * FRAME_SKIP

    return play


def _vector(game: str, threads: int) -> Callable[[], int]:
    from ale_py.vector_env import AtariVectorEnv

    env = AtariVectorEnv(
        game, VECTOR_ENVS, num_threads=threads, frameskip=FRAME_SKIP, stack_num=1, repeat_action_probability=0.0
    )
    count, draws = len(_actions(game)), np.random.default_rng(0)
    env.reset(seed=0)

    def play() -> int:
        env.step(draws.integers(count, size=VECTOR_ENVS))
        return FRAME_SKIP * VECTOR_ENVS

    return play


def _emulator(game: str, count: int, arguments: Arguments) -> Callable[[], int]:
    emulator, actions, draws = Emulator(game, count, **arguments), _actions(game), np.random.default_rng(0)
    emulator.wait_until_compiled()

    def play() -> int:
        emulator.step(draws.choice(actions, count), FRAME_SKIP, 0)
        if emulator.terminated.numpy().any():  # games that are over take no time
            emulator.reset(emulator.terminated)
        wp.synchronize_device(emulator.device)
        return FRAME_SKIP * count

    return play


def _batch(game: str, count: int, arguments: Arguments, pool: int | None) -> Callable[[], int]:
    actions, draws = _actions(game), np.random.default_rng(0)
    options = Preprocessing(actions=tuple(actions))
    batch = ConsoleBatch(game, count, preprocessing=options, reset_pool=pool, **arguments)
    batch.wait_until_compiled()
    batch.reset(range(count))

    def play() -> int:
        batch.step(draws.integers(len(actions), size=count))
        batch.read_outcomes()
        return FRAME_SKIP * count

    return play


def _rate(play: Callable[[], int]) -> float:
    begin, frames = time.perf_counter(), 0
    while time.perf_counter() - begin < ROUND_S:
        frames += play()
    return frames / (time.perf_counter() - begin)


if __name__ == "__main__":
    exit_with(main)
