"""Rules of a game: score, lives and game over, read from bytes of the console's memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

KINDS: dict[str, Callable[[int], int]] = {  # number that a byte may stand for
    "binary": lambda byte: byte,
    "bcd": lambda byte: 10 * (byte >> 4) + (byte & 15),
    "low": lambda byte: byte & 15,
    "high": lambda byte: byte >> 4,
    "low3": lambda byte: byte & 7,
    "low2": lambda byte: byte & 3,
    "high3": lambda byte: byte >> 5,
    "eighth": lambda byte: byte >> 3,
    "glyph": lambda byte: byte // 8 if byte in range(0, 80, 8) else 0,  # offset of a digit's picture
    "signed": lambda byte: byte - 256 * (byte > 127),
    "bcd7": lambda byte: 10 * (byte >> 4 & 7) + (byte & 15),
    "blank": lambda byte: 10 * (byte >> 4) * (byte >> 4 != 10) + (byte & 15) * (byte & 15 != 10),  # digit 10 is blank
    "mid3": lambda byte: byte >> 4 & 7,
    "low1": lambda byte: byte & 1,
    "bits3": lambda byte: bin(byte & 7).count("1"),
    "sides": lambda byte: byte if byte < 128 else 10000 * (256 - byte),  # men of two sides in one sum
}
# Purposes of terms, in the order of native/game.h.
SCORE, LIVES, OVER, KEEP, INSTEAD, FINAL, AGAIN, TOTAL, SAME, MORE, PAR, STROKES, UNTIL, STILL = range(14)
ANY = -1  # way to end
EARLIER = 128  # byte number that stands for the watched byte one frame ago
SCORED, FELL = 129, 130  # byte numbers that stand for the score, and for whether the score fell
CHIP = 256  # number of the first byte of a Superchip's RAM
BOUND = 2**30


@dataclass(frozen=True)
class Term:
    """Byte of the memory, and the number that each of its values stands for.

    Attributes:
        purpose: one of the constants above.
        byte: 0 to 127, or a number that stands for something else.
        table: 256 numbers.
        way: way to end that the term belongs to, or ``ANY``; for ``SAME``, the set of bytes.
    """

    purpose: int
    byte: int
    table: tuple[int, ...]
    way: int = 0


@dataclass(frozen=True)
class Rules:
    """Rules that turn the memory after each frame into reward, lives and game over.

    Attributes:
        wrap: added to points below 0, for example ``10000`` for a counter of four digits that overflows.
        least, most: bounds of the points of a frame in which the score changes.
        watched: byte whose value one frame ago matters, or -1.
        first: lives at the start of a game; 0 means that the memory has them.
        falling: a life is lost whenever the watched byte falls by one; no byte has the number of lives.
        keep_one: while lives are kept, the loss of one life is ignored, instead of all changes.
        lasting: consecutive frames in which a way to end must hold.
        left: lives reported when the game is over.
        total: required sum of the ``TOTAL`` terms; with another sum no way to end counts.
    """

    terms: tuple[Term, ...] = ()
    wrap: int = 0
    least: int = -BOUND
    most: int = BOUND
    watched: int = -1
    first: int = 0
    falling: bool = False
    keep_one: bool = False
    lasting: int = 1
    total: int = 0
    left: int = 0

    @classmethod
    def read(
        cls,
        score: Mapping[int, Any],
        lives: Mapping[Any, Any] | None = None,
        over: Any = (),
        wrap: int = 0,
        least: int = -BOUND,
        most: int = BOUND,
        instead: Mapping[int, Any] | None = None,
        final: Mapping[int, Any] | None = None,
        again: Mapping[int, Any] | None = None,
        still: Mapping[int, Any] | None = None,
        lasting: int = 1,
        total: tuple[int, Mapping[Any, Any]] = (0, {}),
        same: Sequence[str] = (),
        holes: Mapping[str, int] | None = None,
        left: int = 0,
    ) -> Rules:
        """Read the words of ``games.yaml``.

        :func:`_table` explains words for numbers, and :func:`_set` words for sets of values.

        Args:
            score: numbers whose sum is the score, by byte.
            lives: numbers whose sum is the number of lives, by byte. ``first``: see the attribute. ``falling: 8``: a
                life is lost when byte 8 falls by one. ``keep``: lives do not change while all bytes have these values.
                ``keep one``: the loss of one life is ignored then, other changes are not. ``until``: lives do not
                change before all bytes have had these values once.
            over: ways to end, each a set of values for some bytes. Besides bytes, ``"0-7, 9"`` stands for each of
                these, ``before 64`` for byte 64 one frame ago, ``score`` for the score and ``fell`` for 1 where the
                score fell. ``pays`` replaces the points of the last frame, and ``adds`` is added to them.
            wrap, least, most, lasting, left: see the attributes.
            instead: a second score; its changes replace changes of the first.
            final: points of the last frame, in place of all others.
            again: the frame repeats the reward of the previous frame while all bytes have these values.
            still: the same, and score and lives do not change.
            total: required sum, and its numbers by bytes.
            same: sets of bytes, each of which adds a point while its bytes are equal.
            holes: bytes of a golf course: the hole's ``number``, its ``par``, and ``strokes`` over all holes, which are
                shown while no par is.
        """
        numbers = dict(lives or {})
        first, watched, falling = numbers.pop("first", 0), numbers.pop("falling", -1), "falling" in (lives or {})
        terms = [Term(SCORE, byte, _table(words)) for byte, words in score.items()]
        keep, keep_one = numbers.pop("keep", {}), numbers.pop("keep one", {})
        terms += [Term(KEEP, byte, _set(words)) for byte, words in {**keep, **keep_one}.items()]
        terms += [Term(UNTIL, byte, _set(words)) for byte, words in numbers.pop("until", {}).items()]
        terms += [Term(LIVES, byte, _table(words)) for byte, words in numbers.items()]
        terms += [Term(INSTEAD, byte, _table(words)) for byte, words in (instead or {}).items()]
        terms += [Term(FINAL, byte, _table(words), ANY) for byte, words in (final or {}).items()]
        terms += [Term(AGAIN, byte, _set(words)) for byte, words in (again or {}).items()]
        terms += [Term(STILL, byte, _set(words)) for byte, words in (still or {}).items()]
        terms += [Term(SAME, byte, _table("binary"), k) for k, bytes_ in enumerate(same) for byte in numbers_of(bytes_)]
        terms += [Term(TOTAL, byte, _table(words)) for bytes_, words in total[1].items() for byte in numbers_of(bytes_)]
        if holes:
            watched = holes["number"]
            terms += [Term(PAR, holes["par"], _table("bcd")), Term(STROKES, holes["strokes"], _table("bcd"))]
        for way, bytes_ in enumerate(over):
            for byte, words in bytes_.items():
                if byte in ("pays", "adds"):
                    terms.append(Term(FINAL if byte == "pays" else MORE, 0, (words,) * 256, way))
                elif byte in ("score", "fell"):
                    terms.append(Term(OVER, SCORED if byte == "score" else FELL, _set(words), way))
                elif str(byte).startswith("before "):
                    watched = int(byte.removeprefix("before "))
                    terms.append(Term(OVER, EARLIER, _set(words), way))
                else:
                    each = [byte] if isinstance(byte, int) else numbers_of(byte)
                    terms += [Term(OVER, one, _set(words), way) for one in each]
        terms.sort(key=lambda term: term.purpose)  # stable: the terms of a way stay together
        return cls(tuple(terms), wrap, least, most, watched, first, falling, bool(keep_one), lasting, total[0], left)

    @property
    def facts(self) -> list[int]:
        """Numbers for the native code, in the order of ``native/game.h``."""
        numbers = [
            self.wrap,
            self.least,
            self.most,
            self.watched,
            self.first,
            int(self.falling),
            int(self.keep_one),
            self.lasting,
            self.total,
            self.left,
            len(self.terms),
        ]
        for number, term in enumerate(self.terms):
            numbers += [term.purpose, term.byte, number, term.way]
        return numbers

    def tables(self) -> np.ndarray:
        """Tables of the terms, ``(max(terms, 1), 256) int32``."""
        return np.array([term.table for term in self.terms] or [(0,) * 256], np.int32)


def _table(words: Any) -> tuple[int, ...]:
    """Numbers of the 256 values of a byte, from words such as ``"100 bcd"`` or ``"low3 + 1"``.

    In a list, a second entry such as ``{192: 100, low 10: 0}`` has other numbers for some values.
    """
    text, exceptions = (words[0], words[1]) if isinstance(words, list) else (words, {})
    found = re.fullmatch(r"(?:(-?\d+) )?(\w+)(?: \+ (\d+))?", text)
    assert found, text
    weight, kind, more = int(found[1] or 1), KINDS[found[2]], int(found[3] or 0)
    table = [weight * kind(byte) + more for byte in range(256)]
    for values, number in exceptions.items():
        for byte in np.flatnonzero(_set(values)):
            table[byte] = number
    return tuple(table)


def numbers_of(words: Any) -> list[int]:
    """Return the numbers in ``7`` or ``"0-7, 9"``."""
    return [byte for byte, included in enumerate(_set(words)) if included]


def _set(words: Any) -> tuple[int, ...]:
    """1 for each byte in a set such as ``21``, ``"1-255"``, ``"154, 160"`` or ``"low 0"`` (low digit 0), else 0."""
    text = str(words)
    kind, _, listed = ("binary", "", text) if text[0].isdecimal() else text.partition(" ")
    values = set[int]()
    for part in listed.split(", "):
        first, _, last = part.partition("-")
        values |= set(range(int(first), int(last or first) + 1))
    return tuple(int(KINDS[kind](byte) in values) for byte in range(256))
