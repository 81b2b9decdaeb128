"""What a console has to know of a game beside its ROM."""

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
CARTRIDGES = {  # how each maps its banks into the console's 4 KiB; native/console.h knows them by number
    "plain": 0,
    "F8": 1,
    "F6": 2,
    "E0": 3,
    "FE": 4,
    "DPC": 5,
}
SIZES = {"plain": (2048, 4096), "F8": (8192,), "F6": (16384,), "E0": (8192,), "FE": (8192,), "DPC": (10495,)}
IDLE, RESET, SELECT = 0x3F, 0x3E, 0x3D  # the console's switches, nothing pressed: colour, both difficulties B
ACTIONS = (
    "NOOP FIRE UP RIGHT LEFT DOWN UPRIGHT UPLEFT DOWNRIGHT DOWNLEFT UPFIRE RIGHTFIRE LEFTFIRE DOWNFIRE UPRIGHTFIRE "
    "UPLEFTFIRE DOWNRIGHTFIRE DOWNLEFTFIRE"
).split()  # as ALE numbers them
ALL = tuple(range(len(ACTIONS)))

Frames = tuple[tuple[int, int], ...]  # what is pressed in each: an action, and the switches


class EmulatorError(ValueError):
    """A game or cartridge that cannot be played; the message is one sentence."""


@dataclass(frozen=True, repr=False)
class Game:
    """A game as ALE starts it.

    Attributes:
        cartridge: a key of ``CARTRIDGES``, with ``SC`` at its end for 128 bytes of RAM in the cartridge.
        start: frames from the console's reset to the first frame of a game, as ``(action, switches)``.
        frames: the number that a game's first frame has; ALE counts some of those before it.
        first_line: of the television's, that is the picture's first row; ``rows`` of the picture.
        comb: whether a movement blackens eight pixels at the left of its line.
        pal: the game is made for a European television.
        port: of the joystick that player 0 holds.
        paddle: that player 0 turns, if it is no joystick; ``paddle_most``: its resistance at its left end, in ohms.
        modes: of each ``start`` and ``frames``; the usual mode is the first. ``others``: the same of difficulties at
            which they start otherwise.
        difficulties: that there are, the usual one first.
        minimal, legal: actions as ALE numbers them: those that do something in this game, and those that it takes; any
            other is played as NOOP.
        mode, difficulty: that it is played at.
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
    minimal: tuple[int, ...] = ALL
    legal: tuple[int, ...] = ALL
    rules: Rules = field(default=Rules(), hash=False)
    mode: int | None = None
    difficulty: int | None = None

    def __repr__(self) -> str:
        return f"<Game {self.label}>"

    def at(self, mode: int | None = None, difficulty: int | None = None) -> Game:
        """The same game at a mode and a difficulty of ALE's; ``None``: the usual one.

        Raises:
            EmulatorError: it has none of that number, or how it starts there is not known.
        """
        for name, said, there in (("mode", mode, self.modes), ("difficulty", difficulty, self.difficulties)):
            if said is not None and said not in there:
                allowed = ", ".join(map(str, there))
                raise EmulatorError(f"{name}={said}: of {self.name} these are known: {allowed}.")
        modes = self.modes if difficulty is None else self.others.get(difficulty, self.modes)
        return replace(self, mode=mode, difficulty=difficulty, modes=modes)

    @property
    def label(self) -> str:
        """Its name, and mode and difficulty where they are not the usual ones."""
        parts = [("mode", self.mode, self.modes), ("difficulty", self.difficulty, self.difficulties)]
        other = [f"{what} {at}" for what, at, there in parts if at not in (None, next(iter(there), None))]
        return ", ".join([self.name, *other])

    @property
    def again(self) -> Frames:
        """``start`` at its mode."""
        return self.start if self.mode is None else self.modes[self.mode][0]

    @property
    def first_frame(self) -> int:
        """The number of the frame that a game begins with, as ALE counts them."""
        return self.frames if self.mode is None else self.modes[self.mode][1]

    @property
    def script(self) -> list[tuple[int, int]]:
        """Frames of the start when the cartridge is put in, which is at the usual mode, and of the others."""
        return [*self.start, *self.again]

    @property
    def facts(self) -> list[int]:
        """For the native part, in the order of ``native/game.h``."""
        scheme, chip = re.fullmatch(r"(.+?)(SC)?", self.cartridge).groups()  # type: ignore[union-attr]
        paddle = -1 if self.paddle is None else self.paddle
        others = 0 if paddle == 1 else -1  # pong's other player's paddles are turned to their end
        usual, at = (
            value << 6
            for value in (self.difficulties[0], self.difficulties[0] if self.difficulty is None else self.difficulty)
        )
        facts = [
            CARTRIDGES[scheme], chip is not None, not self.comb, self.pal, self.first_line, self.rows,
            self.port == "right", paddle, others, self.paddle_most, sum(1 << k for k in self.legal),
            len(self.start), len(self.again), self.first_frame, usual, at,
            *self.rules.facts,
        ]  # fmt: skip
        return list(map(int, facts))


@functools.cache
def known_games() -> dict[str, Game]:
    """All known games by name."""
    loaded: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "games.yaml").read_text())
    return {name: _game(name, **facts) for name, facts in loaded.items()}


def find(name: str) -> Game:
    """The game of this name.

    Raises:
        EmulatorError: there is none.
    """
    if name not in known_games():
        near = difflib.get_close_matches(name, known_games(), n=3)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise EmulatorError(f"game={name}: no game that is known{hint}.")
    return known_games()[name]


def check(name: str, mode: int | None = None, difficulty: int | None = None) -> None:
    """Raise :class:`EmulatorError` if an agent cannot play this game here."""
    rom_of(find(name).at(mode, difficulty))


def rom_of(game: Game, path: Path | None = None) -> bytes:
    """The bytes of a game's ROM, by default of the one that ale-py brings.

    Raises:
        EmulatorError: its cartridge is not supported, or it is not there, or has no size that its cartridge has.
    """
    if game.cartridge.removesuffix("SC") not in CARTRIDGES:
        raise EmulatorError(f"game={game.name}: its cartridge ({game.cartridge}) is not supported.")
    try:
        if path is None:
            from ale_py import roms

            path = roms.get_rom_path(game.name)
        rom = Path(path).read_bytes()
    except OSError as error:
        reason = error.strerror or str(error).partition("\n")[0].rstrip("!.")  # ale-py's own have no number
        raise EmulatorError(f"rom={path or game.name}: cannot be read ({reason}).") from error
    sizes = SIZES[game.cartridge.removesuffix("SC")]
    if len(rom) not in sizes:
        allowed = " or ".join(f"{size:,}" for size in sizes)
        raise EmulatorError(f"rom={path}: has {len(rom):,} bytes, and the cartridge of {game.name} {allowed}.")
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
    # A mode is the sum of one of each: presses of SELECT, and frames that the key of ``{held}`` is pressed.
    modes, held = modes or {0: 0}, held or {0: 0}
    first = next(iter(modes))
    usual = _frames(start, first, held[0])

    def at(presses: Mapping[int, int], mode: int, other: int) -> tuple[Frames, int]:
        keys, more = _frames(start, mode, held[other]), presses[mode] - presses[first]
        counted = frames + more + len(keys) - len(usual)
        return _selected(keys, presses[mode], *select) if more else keys, counted

    def starts(presses: Mapping[int, int]) -> dict[int, tuple[Frames, int]]:
        return {mode + other: at(presses, mode, other) for other in held for mode in presses}

    return Game(
        name,
        usual,
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


def _selected(usual: Frames, presses: int, held: int, released: int) -> Frames:
    """The start of another mode, whose presses of SELECT stand before the last eight frames of RESET."""
    last = max(k for k, (_, switches) in enumerate(usual) if switches == RESET) + 1
    first = next((k for k, (_, switches) in enumerate(usual) if switches == SELECT), last - 8)
    press = ((0, SELECT),) * held + ((0, IDLE),) * released
    return usual[:first] + press * presses + ((0, RESET),) * 8 + usual[last:]


def _frames(start: str, mode: int, held: int) -> Frames:
    """``"RESET 4, (SELECT 2, NOOP 1) 5"``: keys and how many frames each is pressed, groups and how often; ``{3}`` is
    bit 3 of the mode, ``{held}`` a number of frames."""
    text = start.format(*(mode >> k & 1 for k in range(8)), held=held)
    repeated = re.sub(r"\(([^)]*)\) (\d+)", lambda found: ", ".join([found[1]] * int(found[2])), text)
    frames = list[tuple[int, int]]()
    for part in filter(None, repeated.split(", ")):
        key, count = part.split()
        switches = {"RESET": RESET, "SELECT": SELECT}.get(key, IDLE)
        frames += [(0 if switches != IDLE else ACTIONS.index(key), switches)] * int(count)
    return tuple(frames)
