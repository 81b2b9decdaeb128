"""Measure the speed here: ``python -m atari_warp game=pong num_envs=1,16,64 threads=1 device=cpu``.

Options, with their defaults:
  game=pong          one of ALE's games, several with commas, or all.
  num_envs=1,16,64   numbers of consoles.
  threads=1          CPU threads, of all libraries.
  device=cpu         device of the emulator.
  compile_rom=yes    compiles games' code first, on a CPU; no interprets it.
  reset_pool=auto    consoles that start games ahead, where observations are made; auto: a quarter of num_envs on a
                     GPU, none on a CPU.
  rounds=9           rounds of measurements, 0.3 seconds of each library.

Prints frames per second of one ALE, of ALE's AtariVectorEnv, of EnvPool if it is installed, and of the emulator with
and without observations. All are measured in turn, so that a busy machine slows them alike; shown are medians of the
rounds, and of their ratios. With several games only observations are measured, for the last number of num_envs, and
the last line has the median of the games.
"""

from __future__ import annotations

import importlib
import importlib.util
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
    "game": "pong", "num_envs": "1,16,64", "threads": 1, "device": "cpu", "compile_rom": "yes", "reset_pool": "auto",
    "rounds": 9,
}  # fmt: skip
ROUND_S, WARM_UP_STEPS, FRAME_SKIP, STACK, NOOPS, MOST_PEERS = 0.3, 16, 4, 4, 30, 64
TASK = "4 frames an action, the maximum of the last two, gray, 84x84, 4 stacked"

Arguments = dict[str, Any]
Players = dict[str, Callable[[], int]]  # functions that play some frames, and return their number
Rates = dict[str, np.ndarray]  # frames per second of each player, (rounds,) float


def main() -> int:
    """Run the command, and return its exit status."""
    try:
        options = parse_options(None, OPTIONS, __doc__)
        names = chosen_games(options)
        for name in names:
            check_playable(name)
        counts, threads, device = _counts(str(options["num_envs"])), int(options["threads"]), str(options["device"])
        arguments: Arguments = {"device": device, "threads": threads, "compile_rom": options["compile_rom"] == "yes"}
        pool, rounds = _pool(str(options["reset_pool"])), int(options["rounds"])
        if len(names) == 1:
            _one_game(names[0], counts, arguments, pool, rounds)
        else:
            _many_games(names, counts[-1], arguments, pool, rounds)
    except EmulatorError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _one_game(game: str, counts: Sequence[int], arguments: Arguments, pool: int | None, rounds: int) -> None:
    threads, device = arguments["threads"], arguments["device"]
    envs = min(counts[-1], MOST_PEERS)
    peers = {f"{name}, {_games(envs)}, {_threads(threads)}": play for name, play in _peers(game, envs, threads).items()}
    silent: Players = {"ALE, one console": _ale(game)}
    seeing: Players = {}
    for count in counts:
        label = f"emulator, {_games(count)}, {device if device != 'cpu' else _threads(min(threads, count))}"
        silent[f"{label}, no pictures"] = _emulator(game, count, arguments)
        seeing[f"{label}, observations"] = _batch(game, count, arguments, pool)
    rates = _measure(silent | peers | seeing, game, rounds)
    print(f"{game}; observations: {TASK}\n\n| | frames/s | |\n|---|---:|---:|")
    for players, baseline, whose in (
        (silent, rates["ALE, one console"], "ALE's"),
        (peers | seeing, _faster(rates, peers), "of the faster library's"),
    ):
        for name in players:
            print(f"| {name} | {_median(rates[name]):,.0f} | {_median(rates[name] / baseline):.2f}x {whose} |")


def _many_games(games: Sequence[str], count: int, arguments: Arguments, pool: int | None, rounds: int) -> None:
    threads, device = arguments["threads"], arguments["device"]
    title, rows = ["game", "emulator"], list[list[float]]()
    for game in games:
        peers = _peers(game, count, threads)
        rates = _measure({"emulator": _batch(game, count, arguments, pool)} | peers, game, rounds)
        if not rows:
            title += [*peers, *(f"to {name}" for name in peers), "to the faster"]
            print(f"{TASK}; {_games(count)}, {device if device != 'cpu' else _threads(threads)}\n")
            print("| " + " | ".join(title) + " |\n|---" + "|---:" * (len(title) - 1) + "|")
        ratios = [
            rates["emulator"] / baseline for baseline in (*(rates[name] for name in peers), _faster(rates, peers))
        ]
        speeds = " | ".join(f"{_median(rates[name]):,.0f}" for name in ("emulator", *peers))
        rows.append(list(map(_median, ratios)))
        print(f"| {game} | {speeds} | " + " | ".join(f"{ratio:.2f}x" for ratio in rows[-1]) + " |", flush=True)
    medians = " | ".join(f"{_median(column):.2f}x" for column in zip(*rows, strict=True))
    print(f"| median of {_games(len(rows))} |" + " |" * (len(title) - len(rows[0]) - 1) + f" {medians} |")


def _measure(players: Players, label: str, rounds: int) -> Rates:
    for play in players.values():
        for _ in range(WARM_UP_STEPS):
            play()
    rates: dict[str, list[float]] = {name: [] for name in players}
    for turn in range(rounds):
        for name, play in players.items():
            rates[name].append(_rate(play))
        end = "\n" if turn + 1 == rounds else ""
        print(f"\r{label}: {turn + 1} of {rounds} rounds", end=end, file=sys.stderr, flush=True)
    return {name: np.array(own) for name, own in rates.items()}


def _faster(rates: Rates, peers: Players) -> np.ndarray:
    return np.asarray(np.max([rates[name] for name in peers], axis=0))


def _median(numbers: Any) -> float:
    return statistics.median(map(float, numbers))


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


def _peers(game: str, envs: int, threads: int) -> Players:
    """AtariVectorEnv, and EnvPool if it is installed and has the game."""
    from ale_py.vector_env import AtariVectorEnv

    options: dict[str, Any] = {
        "noop_max": NOOPS,
        "use_fire_reset": False,
        "stack_num": STACK,
        "repeat_action_probability": 0.0,
    }
    found: Players = {}
    peers = {"AtariVectorEnv": AtariVectorEnv(game, envs, frameskip=FRAME_SKIP, num_threads=threads, **options)}
    if importlib.util.find_spec("envpool"):
        envpool = importlib.import_module("envpool")
        task = "".join(map(str.capitalize, game.split("_"))) + "-v5"
        if task in envpool.list_all_envs():
            options |= {"frame_skip": FRAME_SKIP, "max_episode_steps": 27_000}
            peers["EnvPool"] = envpool.make(task, "gym", num_envs=envs, num_threads=threads, **options)
    for name, env in peers.items():
        env.reset()
        found[name] = _stepper(env, game, envs)
    return found


def _stepper(env: Any, game: str, envs: int) -> Callable[[], int]:
    count, draws = len(_actions(game)), np.random.default_rng(0)

    def play() -> int:
        env.step(draws.integers(count, size=envs))
        return FRAME_SKIP * envs

    return play


def _emulator(game: str, count: int, arguments: Arguments) -> Callable[[], int]:
    emulator, actions, draws = Emulator(game, count, **arguments), _actions(game), np.random.default_rng(0)
    emulator.wait_until_compiled()

    def play() -> int:
        emulator.step(draws.choice(actions, count), FRAME_SKIP, 0)
        if emulator.terminated.any():  # games that are over take no time
            emulator.reset(emulator.terminated)
        wp.synchronize_device(emulator.device)
        return FRAME_SKIP * count

    return play


def _batch(game: str, count: int, arguments: Arguments, pool: int | None) -> Callable[[], int]:
    actions, draws = _actions(game), np.random.default_rng(0)
    options = Preprocessing(actions=tuple(actions), frameskip=FRAME_SKIP, stack_num=STACK, noop_max=NOOPS)
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
