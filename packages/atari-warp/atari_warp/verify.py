"""Compare the emulator with ALE: ``python -m atari_warp.verify game=pong frames=10000 sequences=100``.

Options, with their defaults.
  game=pong           one of ALE's games, several with commas, or all.
  frames=10000        frames of each sequence of random actions.
  sequences=10        sequences of each game.
  actions=legal       actions that the game takes; minimal: actions that have an effect; all: the 18 actions of ALE.
  seed=1              seed of the actions.
  consoles=1          with more, sequences are first played on this many consoles, and those with the most frames that
                      scored are compared.
  mode=default        one of ALE's numbers, or all.
  difficulty=default  one of ALE's numbers, or all.
  device=cpu          device of the emulator.
  compile_rom=no      yes compiles each game's code, and waits for it.
  out=.               folder for pictures of differences.

Prints a table with the frames that scored and the games that ended, and its progress on the standard error. The exit
status is 1 if a game differs.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from atari_warp.ale import ale_action, make_ale
from atari_warp.command_line import chosen_games, exit_with, parse_options
from atari_warp.console_data import palette
from atari_warp.emulator import Emulator
from atari_warp.games import ALL_ACTIONS, EmulatorError, Game, check_playable, find_game

HOLD = 4  # frames that an action lasts
REPORT_EVERY_S = 20
HABIT_STEPS = 150  # ten seconds in which a console prefers one action
LONGEST_ACTIONS = (1, 4, 10, 22)  # steps, up to a second and a half
OPTIONS: dict[str, str | int] = {
    "game": "pong",
    "frames": 10_000,
    "sequences": 10,
    "consoles": 1,
    "seed": 1,
    "actions": "legal",
    "device": "cpu",
    "mode": "default",
    "difficulty": "default",
    "compile_rom": "no",
    "out": ".",
}


@dataclass(frozen=True)
class Difference:
    """First frame of a sequence in which ALE and the emulator differ."""

    sequence: int
    frame: int
    what: str
    pictures: tuple[np.ndarray, np.ndarray]  # of ALE and of the emulator, (rows, 160) uint8


@dataclass(frozen=True)
class Result:
    """Comparison of a game, up to its first difference.

    Attributes:
        frames: frames compared in all sequences.
        scored: frames with a reward.
        ended: games that ended.
        refused: error, if the game cannot be played.
    """

    game: str
    frames: int = 0
    scored: int = 0
    ended: int = 0
    difference: Difference | None = None
    refused: str | None = None

    def line(self) -> str:
        """Row of the table."""
        if self.refused:
            return f"| {self.game} | - | - | - | {self.refused} |"
        found = self.difference
        verdict = "equal" if found is None else f"sequence {found.sequence}, frame {found.frame}: {found.what}"
        return f"| {self.game} | {self.frames:,} | {self.scored:,} | {self.ended:,} | {verdict} |"


def verify(
    name: str,
    frames: int,
    sequences: int,
    seed: int = 0,
    device: str = "cpu",
    mode: int | None = None,
    difficulty: int | None = None,
    compile_rom: bool = False,
    consoles: int = 1,
    actions: str = "legal",
    report: Callable[[str], object] = lambda _: None,
) -> Result:
    """Play random actions in ALE and the emulator, and compare both after every frame.

    Compared are memory, picture, frame number, reward, lives and game over. A sequence ends with its game. All
    sequences share two consoles. Sequences of :func:`scoring_sequences` get new ones, because no two starts of a
    console are the same.

    Args:
        frames: maximum number of frames in each of the ``sequences``.
        consoles: above 1, compare the sequences of :func:`scoring_sequences`, found on this number of consoles.
        actions: name of a set of actions, as in the command.
        report: receives a line about the progress now and then.
    """
    label = name + (f", mode {mode}" if mode is not None else "") + (f", difficulty {difficulty}" if difficulty else "")
    played = scored = ended = 0
    reported = time.monotonic()
    try:
        game = find_game(name).at(mode, difficulty)
        emulator, ale = Emulator(game, device=device, compile_rom=compile_rom), make_ale(name, mode, difficulty)
        emulator.wait_until_compiled()
        choices = {"legal": game.legal, "minimal": game.minimal, "all": ALL_ACTIONS}[actions]
        search = (frames, sequences, consoles, seed, device, compile_rom)
        best = scoring_sequences(game, choices, *search) if consoles > 1 else []
        for sequence in range(len(best) or sequences):
            if sequence and best:
                emulator, ale = Emulator(game, device=device, compile_rom=compile_rom), make_ale(name, mode, difficulty)
            elif sequence:
                ale.reset_game()
                emulator.reset()
            what, chosen = _difference(ale, emulator, None), best[sequence] if best else None
            draws, action = np.random.default_rng([seed, sequence]), 0
            for frame in range(frames + 1):
                if what:
                    found = Difference(sequence, frame, what, (ale.getScreen(), emulator.screen()[0]))
                    return Result(label, played, scored, ended, found)
                if frame == frames or ale.game_over():
                    break
                if time.monotonic() - reported > REPORT_EVERY_S:
                    reported = time.monotonic()
                    report(f"{label}: {played:,} equal frames, sequence {sequence + 1} of {len(best) or sequences}")
                if frame % HOLD == 0:
                    action = int(draws.choice(choices) if chosen is None else chosen[frame // HOLD])
                reward = ale.act(ale_action(action))
                emulator.step([action])
                played, scored, ended = played + 1, scored + (reward != 0), ended + ale.game_over()
                what = _difference(ale, emulator, reward)
    except EmulatorError as error:
        return Result(label, refused=str(error))
    return Result(label, played, scored, ended)


def scoring_sequences(
    game: Game,
    actions: Sequence[int],
    frames: int,
    sequences: int,
    consoles: int,
    seed: int = 0,
    device: str = "cpu",
    compile_rom: bool = False,
) -> list[np.ndarray]:
    """Play a game on many consoles, and return the action sequences that scored most often.

    For ten seconds at a time each console prefers one action, and a longest duration of actions.

    Returns:
        Actions ``(steps,) int32`` of each sequence, each lasting :data:`HOLD` frames.
    """
    emulator, draws = Emulator(game, consoles, device=device, compile_rom=compile_rom), np.random.default_rng(seed)
    steps, scored = -(-frames // HOLD), np.zeros(consoles, int)
    played, left, action = np.zeros((steps, consoles), np.int32), np.zeros(consoles, int), np.zeros(consoles, int)
    for step in range(steps):
        if step % HABIT_STEPS == 0:
            preferred, longest = draws.choice(actions, consoles), draws.choice(LONGEST_ACTIONS, consoles)
        drawn = np.where(draws.random(consoles) < 0.5, preferred, draws.choice(actions, consoles))
        action = np.where(left > 0, action, drawn)
        left = np.where(left > 0, left, draws.integers(1, longest + 1)) - 1
        played[step] = action
        emulator.step(action, HOLD, drawn=0)
        scored += emulator.reward != 0
        if emulator.terminated.all():
            break
    return [played[:, console] for console in np.argsort(-scored, kind="stable")[:sequences]]


def _difference(ale: Any, emulator: Emulator, reward: int | None) -> str:
    """Describe the present difference, or return an empty string.

    Args:
        reward: ALE's reward of the last step, if there was one.
    """
    ours, theirs = emulator.ram()[0], ale.getRAM()
    if not np.array_equal(ours, theirs):
        at = np.flatnonzero(ours != theirs)
        shown = ", ".join(f"{k}: ALE {theirs[k]}, here {ours[k]}" for k in at[:4])
        return f"{at.size} bytes of memory ({shown}); {_registers(emulator)}"
    ours, theirs = emulator.screen()[0], ale.getScreen()
    if not np.array_equal(ours, theirs):
        places = np.argwhere(ours != theirs)
        first = row, column = tuple(int(k) for k in places[0])
        where = f"row {row}, column {column} (ALE {theirs[first]}, here {ours[first]})"
        return f"{len(places):,} pixels, the first in {where}; {_registers(emulator)}"
    now = emulator.registers()
    ours, theirs = int(now["frames"][0]), ale.getEpisodeFrameNumber()
    if ours != theirs:
        return f"frame number: ALE {theirs}, here {ours}; {_registers(emulator)}"
    for what, theirs, ours in (
        ("game over", ale.game_over(), bool(now["over"][0])),
        ("reward", reward, None if reward is None else int(emulator.reward[0])),
        ("lives", ale.lives(), int(now["lives"][0])),
    ):
        if theirs != ours:
            return f"{what}: ALE {theirs}, here {ours}; {_registers(emulator)}"
    return ""


def _registers(emulator: Emulator) -> str:
    return ", ".join(f"{name} {int(value[0])}" for name, value in emulator.registers().items())


def save_pictures(game: str, difference: Difference, path: Path) -> None:
    """Save ALE's picture, the emulator's picture and a mask of their differences, side by side."""
    from PIL import Image

    (theirs, ours), colors = difference.pictures, palette(find_game(game).pal)
    mask = np.where(theirs != ours, 255, 0).astype(np.uint8)[..., None].repeat(3, axis=-1)
    joined = np.concatenate([colors[theirs], colors[ours], mask], axis=1)
    Image.fromarray(joined.repeat(2, axis=1)).save(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    try:
        options = parse_options(arguments, OPTIONS, __doc__)
        names, asks_ale = chosen_games(options), "all" in (options["mode"], options["difficulty"])
        for name in names if asks_ale else ():
            check_playable(name)
    except EmulatorError as error:
        print(error, file=sys.stderr)
        return 2
    frames, sequences, seed, consoles = (int(options[name]) for name in ("frames", "sequences", "seed", "consoles"))
    print("| game | frames compared | with points | ends | |\n|---|---:|---:|---:|---|", flush=True)
    unequal = 0
    for name, mode, difficulty in _variants(names, str(options["mode"]), str(options["difficulty"])):
        chosen = str(options["device"]), mode, difficulty, options["compile_rom"] == "yes"
        report = functools.partial(print, file=sys.stderr, flush=True)
        result = verify(name, frames, sequences, seed, *chosen, consoles, str(options["actions"]), report)
        print(result.line(), flush=True)
        unequal += result.difference is not None or result.refused is not None
        if result.difference is not None:
            path = Path(str(options["out"]), result.game.replace(", ", "_").replace(" ", "_") + ".png")
            try:
                save_pictures(name, result.difference, path)
                print(f"Both pictures: {path}", file=sys.stderr)
            except ImportError:
                print("No pictures are saved. Install Pillow to save them.", file=sys.stderr)
            except OSError as error:
                print(f"out={options['out']}: pictures cannot be saved ({error.strerror}).", file=sys.stderr)
    return min(unequal, 1)


def _variants(names: Sequence[str], *words: str) -> Iterator[tuple[str, int | None, int | None]]:
    """Games at each mode and difficulty that the two words choose; ``all`` takes ALE's."""
    for name in names:
        if "all" in words:
            ale = make_ale(name)
            available = ale.getAvailableModes(), ale.getAvailableDifficulties()
        each: list[list[int | None]] = [
            [None] if word == "default" else list(available[k]) if word == "all" else [int(word)]
            for k, word in enumerate(words)
        ]
        yield from ((name, mode, difficulty) for mode in each[0] for difficulty in each[1])


if __name__ == "__main__":
    exit_with(main)
