"""Games that ALE plays: cartridges, starts, modes, actions and rules, which a ROM does not tell."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from atari_warp.rules import Rules, numbers_of

FOLDER = Path(__file__).parent
# Schemes that map banks of a cartridge into the console's 4 KiB, by their numbers in native/console.h.
CARTRIDGES = {"plain": 0, "F8": 1, "F6": 2, "E0": 3, "FE": 4, "DPC": 5}
SIZES = {"plain": (2048, 4096), "F8": (8192,), "F6": (16384,), "E0": (8192,), "FE": (8192,), "DPC": (10495,)}
IDLE, RESET, SELECT = 0x3F, 0x3E, 0x3D  # switches of the console: none pressed, colour, both difficulties B
ACTIONS = (
    "NOOP FIRE UP RIGHT LEFT DOWN UPRIGHT UPLEFT DOWNRIGHT DOWNLEFT UPFIRE RIGHTFIRE LEFTFIRE DOWNFIRE UPRIGHTFIRE "
    "UPLEFTFIRE DOWNRIGHTFIRE DOWNLEFTFIRE"
).split()  # in ALE's order
FOR_TWO = ("combat", "joust", "maze_craze", "warlords")
ALL_ACTIONS = tuple(range(len(ACTIONS)))

Frames = tuple[tuple[int, int], ...]  # action and switches pressed in each frame


class EmulatorError(ValueError):
    """Error of an argument: ``name=value: problem.``, and what to do about it."""


class UnknownGameError(EmulatorError, TypeError):
    """Error of a game's name; ALE raises a ``TypeError``."""


@dataclass(frozen=True, repr=False)
class Game:
    """Game as ALE starts it.

    Attributes:
        cartridge: a key of :data:`CARTRIDGES`, followed by ``SC`` if the cartridge has 128 bytes of RAM.
        start: action and switches of each frame from the console's reset to the first frame of a game.
        frames: ALE's number of a game's first frame; ALE counts some frames of the start.
        first_line: television line of the picture's first row.
        rows: rows of the picture.
        comb: whether HMOVE blackens eight pixels at the left of its line.
        pal: PAL television instead of NTSC.
        port: side of player 0's joystick.
        paddle: paddle of player 0, instead of a joystick.
        paddle_most: resistance of the paddle at its left end, in ohms.
        modes: ``start`` and ``frames`` of each mode, the default mode first.
        others: modes of the difficulties that start in another way.
        difficulties: the default difficulty first.
        minimal: ALE numbers of the actions that have an effect in this game.
        legal: ALE numbers of the actions that the game takes; others count as NOOP.
        mode, difficulty: chosen ones; ``None`` means the default.
    """

    name: str
    start: Frames
    cartridge: str = "plain"
    frames: int = 0
    first_line: int = 34
    rows: int = 210
    comb: bool = True
    pal: bool = False
    port: str = "left"
    paddle: int | None = None
    paddle_most: int = 790_196
    modes: Mapping[int, tuple[Frames, int]] = field(default_factory=dict, hash=False)
    others: Mapping[int, Mapping[int, tuple[Frames, int]]] = field(default_factory=dict, hash=False)
    difficulties: tuple[int, ...] = (0,)
    minimal: tuple[int, ...] = ALL_ACTIONS
    legal: tuple[int, ...] = ALL_ACTIONS
    rules: Rules = field(default=Rules(), hash=False)
    mode: int | None = None
    difficulty: int | None = None

    def __repr__(self) -> str:
        return f"<Game {self.label}>"

    def at(self, mode: int | None = None, difficulty: int | None = None) -> Game:
        """Return this game at another mode and difficulty of ALE; ``None`` means the default.

        Raises:
            EmulatorError: the game has no such mode or difficulty, or its start is not known.
        """
        for name, chosen, known in (("mode", mode, self.modes), ("difficulty", difficulty, self.difficulties)):
            if chosen is not None and chosen not in known:
                allowed = ", ".join(map(str, known))
                raise EmulatorError(
                    f"{name}={chosen}: {self.name} has {name} {allowed} here. Choose one, or use ale-py."
                )
        modes = self.modes if difficulty is None else self.others.get(difficulty, self.modes)
        return replace(self, mode=mode, difficulty=difficulty, modes=modes)

    @property
    def label(self) -> str:
        """Name of the game, with its mode and difficulty if they are not the default."""
        parts = [("mode", self.mode, self.modes), ("difficulty", self.difficulty, self.difficulties)]
        chosen = [f"{what} {at}" for what, at, known in parts if at not in (None, next(iter(known), None))]
        return ", ".join([self.name, *chosen])

    @property
    def mode_start(self) -> Frames:
        """``start`` at the chosen mode."""
        return self.start if self.mode is None else self.modes[self.mode][0]

    @property
    def first_frame(self) -> int:
        """ALE's number of a game's first frame at the chosen mode."""
        return self.frames if self.mode is None else self.modes[self.mode][1]

    @property
    def script(self) -> list[tuple[int, int]]:
        """Frames of the first start, at the default mode, and then of all others."""
        return [*self.start, *self.mode_start]

    @property
    def facts(self) -> list[int]:
        """Numbers for the native code, in the order of ``native/game.h``."""
        paddle = -1 if self.paddle is None else self.paddle
        other_paddles = 0 if paddle == 1 else -1  # in Pong, the other player's paddles are turned to their end
        default = self.difficulties[0]
        switches = [value << 6 for value in (default, default if self.difficulty is None else self.difficulty)]
        facts = [
            CARTRIDGES[self.cartridge.removesuffix("SC")], self.cartridge.endswith("SC"), not self.comb, self.pal,
            self.first_line, self.rows,
            self.port == "right", paddle, other_paddles, self.paddle_most, sum(1 << k for k in self.legal),
            len(self.start), len(self.mode_start), self.first_frame, *switches,
            *self.rules.facts,
        ]  # fmt: skip
        return list(map(int, facts))


@functools.cache
def known_games() -> dict[str, Game]:
    """Return all known games by name."""
    return {name: find_game(name) for name in _records()}


@functools.cache
def find_game(name: str) -> Game:
    """Return the game of this name.

    Raises:
        UnknownGameError: the game is unknown.
    """
    if name not in _records():
        if name in FOR_TWO:
            raise UnknownGameError(
                f"game={name}: is a game for two players, which neither this emulator nor ALE plays."
            )
        near = difflib.get_close_matches(str(name).lower(), _records(), n=3)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise UnknownGameError(f"game={name}: unknown game.{hint}")
    return _game(name, **_records()[name])


@functools.cache
def _records() -> dict[str, dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the first is faster, and not everywhere
    records: dict[str, dict[str, Any]] = yaml.load((FOLDER / "games.yaml").read_text(), loader)
    return records


def check_playable(name: str, mode: int | None = None, difficulty: int | None = None) -> None:
    """Raise :class:`EmulatorError` if a game cannot be played here at this mode and difficulty."""
    read_rom(find_game(name).at(mode, difficulty))


def read_rom(game: Game, path: Path | None = None) -> bytes:
    """Return the bytes of a game's ROM.

    Args:
        path: a ROM file; ``None`` takes ale-py's.

    Raises:
        EmulatorError: the cartridge is not supported, or the file cannot be read or has another size.
    """
    if game.cartridge.removesuffix("SC") not in CARTRIDGES:
        raise EmulatorError(f"game={game.name}: cartridges of type {game.cartridge} are not supported.")
    try:
        if path is None:
            from ale_py import roms

            path = roms.get_rom_path(game.name)
        rom = Path(path).read_bytes()
    except OSError as error:
        reason = error.strerror or str(error).partition("\n")[0].rstrip("!.")  # errors of ale-py have no strerror
        raise EmulatorError(f"rom={path or game.name}: cannot be read ({reason}).") from error
    sizes = SIZES[game.cartridge.removesuffix("SC")]
    if len(rom) not in sizes:
        allowed = " or ".join(f"{size:,}" for size in sizes)
        raise EmulatorError(f"rom={path}: has {len(rom):,} bytes, but a cartridge of {game.name} has {allowed}.")
    return rom * (4096 // len(rom)) if len(rom) < 4096 else rom


def _game(
    name: str,
    start: str,
    rules: Mapping[str, Any],
    frames: int = 0,
    pal: bool = False,
    rows: int | None = None,
    modes: Mapping[int, int] | None = None,
    others: Mapping[int, Mapping[int, int]] | None = None,
    select: Sequence[int] = (2, 1),
    held: Mapping[int, int] | None = None,
    difficulties: Sequence[int] = (0,),
    minimal: str = "0-17",
    legal: str = "0-17",
    **facts: Any,
) -> Game:
    """Return the game of a record in ``games.yaml``.

    Args:
        modes: presses of SELECT that choose a mode.
        others: the same at difficulties that differ.
        select: frames that SELECT is held and released.
        held: frames that the key ``{held}`` of ``start`` is held, for numbers that are added to a mode.
    """
    modes, held = modes or {0: 0}, held or {0: 0}
    first = next(iter(modes))
    default = _frames(start, first, held[0])

    def at(presses: Mapping[int, int], mode: int, other: int) -> tuple[Frames, int]:
        keys, more = _frames(start, mode, held[other]), presses[mode] - presses[first]
        counted = frames + more + len(keys) - len(default)
        return _selected(keys, presses[mode], *select) if more else keys, counted

    def starts(presses: Mapping[int, int]) -> dict[int, tuple[Frames, int]]:
        return {mode + other: at(presses, mode, other) for other in held for mode in presses}

    return Game(
        name,
        default,
        frames=frames,
        pal=pal,
        rows=rows or (250 if pal else 210),
        rules=Rules.read(**rules),
        modes=starts(modes),
        others={difficulty: starts(presses) for difficulty, presses in (others or {}).items()},
        difficulties=tuple(difficulties),
        minimal=tuple(numbers_of(minimal)),
        legal=tuple(numbers_of(legal)),
        **facts,
    )


def _selected(default: Frames, presses: int, held: int, released: int) -> Frames:
    """Start of another mode: presses of SELECT before the last eight frames of RESET."""
    last = max(k for k, (_, switches) in enumerate(default) if switches == RESET) + 1
    first = next((k for k, (_, switches) in enumerate(default) if switches == SELECT), last - 8)
    press = ((0, SELECT),) * held + ((0, IDLE),) * released
    return default[:first] + press * presses + ((0, RESET),) * 8 + default[last:]


def _frames(start: str, mode: int, held: int) -> Frames:
    """Frames of a start such as ``"RESET 4, (SELECT 2, NOOP 1) 5"``: keys or groups, and how often each comes.

    ``{3}`` stands for bit 3 of the mode, and ``{held}`` for a number of frames.
    """
    text = start.format(*(mode >> k & 1 for k in range(8)), held=held)
    repeated = re.sub(r"\(([^)]*)\) (\d+)", lambda found: ", ".join([found[1]] * int(found[2])), text)
    frames = list[tuple[int, int]]()
    for part in filter(None, repeated.split(", ")):
        key, count = part.split()
        switches = {"RESET": RESET, "SELECT": SELECT}.get(key, IDLE)
        frames += [(0 if switches != IDLE else ACTIONS.index(key), switches)] * int(count)
    return tuple(frames)
