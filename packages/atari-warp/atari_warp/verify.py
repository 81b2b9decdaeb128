"""Is the emulator equal to ALE? ``python -m atari_warp.verify game=pong frames=10000 sequences=100``.

Options: ``game`` a name of ALE's, several with commas, or ``all``; ``frames`` of a sequence of random actions (10000);
``sequences`` (10); ``actions`` (legal): all that a game takes, or ``minimal``, those that do something in it; ``seed``
of the actions (1); ``consoles`` (1): with more, that many are played first, and those sequences compared that made
points most often; ``mode`` and ``difficulty`` (usual): a number, or ``all``; ``device`` (cpu); ``translate`` (no): yes
compiles each game's code first; ``out``: a folder for pictures of what differs (.).

Prints a table, with the frames that made points and the games that ended, to the standard error how far it is, and
exits with 1 if a game is not equal.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from atari_warp.colors import palette
from atari_warp.emulator import Emulator
from atari_warp.games import EmulatorError, Game, check, find, known_games

HOLD = 4  # frames that an action is held
SAID_EVERY_S = 20
OPTIONS: dict[str, str | int] = {
    "game": "pong",
    "frames": 10_000,
    "sequences": 10,
    "consoles": 1,
    "seed": 1,
    "actions": "legal",
    "device": "cpu",
    "mode": "usual",
    "difficulty": "usual",
    "translate": "no",
    "out": ".",
}


@dataclass(frozen=True)
class Difference:
    """The first frame of a sequence of actions after which the two are not equal."""

    sequence: int
    frame: int
    what: str
    pictures: tuple[np.ndarray, np.ndarray]  # ALE's and ours, (rows, 160) uint8


@dataclass(frozen=True)
class Result:
    """What was compared of a game: ``frames`` of all sequences together, until the first difference if there is one, of
    which ``paid`` made points, and ``ended`` games."""

    game: str
    frames: int = 0
    paid: int = 0
    ended: int = 0
    difference: Difference | None = None
    refused: str | None = None

    def line(self) -> str:
        if self.refused:
            return f"| {self.game} | - | - | - | {self.refused} |"
        found = self.difference
        said = "equal" if found is None else f"sequence {found.sequence}, frame {found.frame}: {found.what}"
        return f"| {self.game} | {self.frames:,} | {self.paid:,} | {self.ended:,} | {said} |"


def verify(
    name: str,
    frames: int,
    sequences: int,
    seed: int = 0,
    device: str = "cpu",
    mode: int | None = None,
    difficulty: int | None = None,
    translate: bool = False,
    consoles: int = 1,
    minimal: bool = False,
    say: Callable[[str], object] = lambda _: None,
) -> Result:
    """Play ``sequences`` of random actions, up to ``frames`` frames each, in ALE and here; compare after every frame
    the memory, the picture, the number of the frame, reward, lives and end.

    A sequence ends with its game. Each starts the game anew in the same two consoles; those of :func:`sought`, which
    ``consoles`` above 1 asks for, in new ones, since no two starts of a console are the same. Actions are those that
    the game takes, or with ``minimal`` those that do something. ``say`` is told now and then how far it is.
    """
    label = name + (f", mode {mode}" if mode is not None else "") + (f", difficulty {difficulty}" if difficulty else "")
    played = paid = ended = 0
    said = time.monotonic()
    try:
        game = find(name).at(mode, difficulty)
        emulator, ale = Emulator(game, device=device, translate=translate), _ale_at(name, mode, difficulty)
        actions = game.minimal if minimal else game.legal
        best = sought(game, actions, frames, sequences, consoles, seed, device, translate) if consoles > 1 else []
        for sequence in range(len(best) or sequences):
            if sequence and best:
                emulator, ale = Emulator(game, device=device, translate=translate), _ale_at(name, mode, difficulty)
            elif sequence:
                ale.reset_game()
                emulator.reset()
            what, chosen = _differs(ale, emulator, None), best[sequence] if best else None
            draws, action = np.random.default_rng([seed, sequence]), 0
            for frame in range(frames + 1):
                if what:
                    found = Difference(sequence, frame, what, (ale.getScreen(), emulator.screen()[0]))
                    return Result(label, played, paid, ended, found)
                if frame == frames or ale.game_over():
                    break
                if time.monotonic() - said > SAID_EVERY_S:
                    said = time.monotonic()
                    say(f"{label}: {played:,} frames are equal, in sequence {sequence + 1} of {len(best) or sequences}")
                if frame % HOLD == 0:
                    action = int(draws.choice(actions) if chosen is None else chosen[frame // HOLD])
                reward = ale.act(ale_action(action))
                emulator.step([action])
                played, paid, ended = played + 1, paid + (reward != 0), ended + ale.game_over()
                what = _differs(ale, emulator, reward)
    except EmulatorError as error:
        return Result(label, refused=str(error))
    return Result(label, played, paid, ended)


def sought(
    game: Game,
    actions: Sequence[int],
    frames: int,
    sequences: int,
    consoles: int,
    seed: int = 0,
    device: str = "cpu",
    translate: bool = False,
) -> list[np.ndarray]:
    """Of a game on many consoles, played until all have ended or for ``frames``, those that made points most often:
    the actions of each, which last for four frames, ``(steps,) int32``.

    For ten seconds at a time a console has an action that comes more often than the others, and a time that actions may
    last, up to a second and a half.
    """
    emulator, draws = Emulator(game, consoles, device=device, translate=translate), np.random.default_rng(seed)
    steps, points = -(-frames // HOLD), np.zeros(consoles, int)
    played, left, action = np.zeros((steps, consoles), np.int32), np.zeros(consoles, int), np.zeros(consoles, int)
    for step in range(steps):
        if step % 150 == 0:
            liked, longest = draws.choice(actions, consoles), draws.choice([1, 4, 10, 22], consoles)
        drawn = np.where(draws.random(consoles) < 0.5, liked, draws.choice(actions, consoles))
        action = np.where(left > 0, action, drawn)
        left = np.where(left > 0, left, draws.integers(1, longest + 1)) - 1
        played[step] = action
        emulator.step(action, HOLD, seen=0)
        points += emulator.reward.numpy() != 0
        if emulator.terminated.numpy().all():
            break
    return [played[:, console] for console in np.argsort(-points, kind="stable")[:sequences]]


def _ale_at(name: str, mode: int | None, difficulty: int | None) -> Any:
    """ALE with a game at its first frame; ALE loads it at its usual mode."""
    ale = ale_of(name)
    if mode is not None:
        ale.setMode(mode)
    if difficulty is not None:
        ale.setDifficulty(difficulty)
    if mode is not None or difficulty is not None:
        ale.reset_game()
    return ale


def _differs(ale: Any, emulator: Emulator, reward: int | None) -> str:
    """What is not equal now, in words; ``reward``: ALE's of the last step, if there was one."""
    ours, theirs = emulator.ram().numpy()[0], ale.getRAM()
    if not np.array_equal(ours, theirs):
        at = np.flatnonzero(ours != theirs)
        shown = ", ".join(f"{k}: {theirs[k]} for {ours[k]}" for k in at[:4])
        return f"{at.size} bytes of memory (ALE's for ours: {shown}); {_registers(emulator)}"
    ours, theirs = emulator.screen()[0], ale.getScreen()
    if not np.array_equal(ours, theirs):
        places = np.argwhere(ours != theirs)
        first = row, column = tuple(int(k) for k in places[0])
        where = f"row {row}, column {column} (ALE's {theirs[first]} for {ours[first]})"
        return f"{len(places):,} pixels, the first in {where}; {_registers(emulator)}"
    now = emulator.registers()
    ours, theirs = int(now["frames"][0]), ale.getEpisodeFrameNumber()
    if ours != theirs:
        return f"number of the frame: ALE's {theirs} for {ours}; {_registers(emulator)}"
    over = bool(now["over"][0])
    for what, theirs, ours in (
        ("the game is over", ale.game_over(), over),
        ("reward", reward, None if reward is None else int(emulator.reward.numpy()[0])),
        ("lives", ale.lives(), int(now["lives"][0])),
    ):
        if theirs != ours:
            return f"{what}: ALE's {theirs} for {ours}; {_registers(emulator)}"
    return ""


def _registers(emulator: Emulator) -> str:
    return ", ".join(f"{name} {int(value[0])}" for name, value in emulator.registers().items())


def ale_of(name: str, rom: Path | None = None) -> Any:
    """ALE with a game, at every frame of which it does what it is told; ``rom``: of another file than ale-py's."""
    from ale_py import ALEInterface, LoggerMode, roms

    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(rom or roms.get_rom_path(name))
    return ale


def ale_action(number: int) -> Any:
    from ale_py import Action

    return Action(number)


def save_pictures(game: str, difference: Difference, path: Path) -> None:
    """ALE's picture, ours, and where they differ in white, side by side."""
    from PIL import Image

    (theirs, ours), colors = difference.pictures, palette(find(game).pal)
    where = np.where(theirs != ours, 255, 0).astype(np.uint8)[..., None].repeat(3, axis=-1)
    joined = np.concatenate([colors[theirs], colors[ours], where], axis=1)
    Image.fromarray(joined.repeat(2, axis=1)).save(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    try:
        options = options_of(arguments, OPTIONS, __doc__)
        names, asks_ale = names_of(options), "all" in (options["mode"], options["difficulty"])
        for name in names if asks_ale else ():
            check(name)
    except EmulatorError as error:
        print(error, file=sys.stderr)
        return 2
    frames, sequences, seed, consoles = (int(options[name]) for name in ("frames", "sequences", "seed", "consoles"))
    print("| game | frames compared | with points | ends | |\n|---|---:|---:|---:|---|", flush=True)
    unequal = 0
    for name, mode, difficulty in _chosen(names, str(options["mode"]), str(options["difficulty"])):
        chosen = str(options["device"]), mode, difficulty, options["translate"] == "yes"
        say = functools.partial(print, file=sys.stderr, flush=True)
        result = verify(name, frames, sequences, seed, *chosen, consoles, options["actions"] == "minimal", say)
        print(result.line(), flush=True)
        unequal += result.difference is not None or result.refused is not None
        if result.difference is not None:
            path = Path(str(options["out"]), result.game.replace(", ", "_").replace(" ", "_") + ".png")
            try:
                save_pictures(name, result.difference, path)
                print(f"both pictures: {path}", file=sys.stderr)
            except OSError as error:
                print(f"out={options['out']}: no pictures ({error.strerror}).", file=sys.stderr)
    return min(unequal, 1)


def _chosen(names: Sequence[str], *said: str) -> Iterator[tuple[str, int | None, int | None]]:
    """The games, each at the modes and difficulties that were named; ``all`` are those that ALE has."""
    for name in names:
        if "all" in said:
            ale = ale_of(name)
            there = ale.getAvailableModes(), ale.getAvailableDifficulties()
        each: list[list[int | None]] = [
            [None] if word == "usual" else list(there[k]) if word == "all" else [int(word)]
            for k, word in enumerate(said)
        ]
        yield from ((name, mode, difficulty) for mode in each[0] for difficulty in each[1])


def options_of(
    arguments: Sequence[str] | None, usual: Mapping[str, str | int], doc: str | None
) -> dict[str, str | int]:
    """Options ``name=value`` of a command, by default of the command line, over its ``usual`` ones; ``--help`` prints
    ``doc`` and ends. Raises :class:`EmulatorError`."""
    options, arguments = dict(usual), sys.argv[1:] if arguments is None else arguments
    said = {argument.partition("=")[0] for argument in arguments}
    if {"-h", "--help"} & set(arguments):
        print(doc)
        raise SystemExit(0)
    for argument in arguments:
        name, given, value = argument.partition("=")
        if name not in usual or not given:
            raise EmulatorError(f"{argument}: no option; they are {', '.join(f'{option}=' for option in usual)}.")
        if isinstance(usual[name], int) and not (value.isdecimal() and int(value)):
            raise EmulatorError(f"{argument}: takes a whole number, at least 1.")
        if name in ("mode", "difficulty") and not value.isdecimal() and value not in ("usual", "all"):
            raise EmulatorError(f"{argument}: takes a number of ALE's, all, or usual.")
        if name == "translate" and value not in ("yes", "no"):
            raise EmulatorError(f"{argument}: takes yes or no.")
        if name == "actions" and value not in ("legal", "minimal"):
            raise EmulatorError(f"{argument}: takes legal or minimal.")
        options[name] = int(value) if isinstance(usual[name], int) else value
    if options.get("translate") == "yes" and options["device"] != "cpu":
        if "translate" in said:
            raise EmulatorError("translate=yes: game code is compiled for device=cpu alone.")
        options["translate"] = "no"
    if not Path(str(options.get("out", "."))).is_dir():
        raise EmulatorError(f"out={options['out']}: no such folder.")
    return options


def names_of(options: Mapping[str, str | int]) -> list[str]:
    """The games that ``game=`` names; raises :class:`EmulatorError` if one is not known."""
    said = str(options["game"])
    return [find(name).name for name in (known_games() if said == "all" else said.split(","))]


def ends(command: Callable[[], int]) -> NoReturn:
    """Do a command and end with its status: as shells have it after Ctrl-C, and without a word if nobody reads on."""
    try:
        status = command()
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is written at the exit
        status = 141
    sys.exit(status)


if __name__ == "__main__":
    ends(main)
