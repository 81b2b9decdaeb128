"""Score, lives and end of a game, as bytes of the console's memory tell them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

KINDS: dict[str, Callable[[int], int]] = {  # what a byte may mean
    "binary": lambda byte: byte,
    "bcd": lambda byte: 10 * (byte >> 4) + (byte & 15),
    "low": lambda byte: byte & 15,
    "high": lambda byte: byte >> 4,
    "low3": lambda byte: byte & 7,
    "low2": lambda byte: byte & 3,
    "high3": lambda byte: byte >> 5,
    "eighth": lambda byte: byte >> 3,
    "signed": lambda byte: byte - 256 * (byte > 127),
    "bits": lambda byte: bin(byte).count("1"),
}
SCORE, LIVES, OVER = range(3)
BOUND = 2**30


@dataclass(frozen=True)
class Term:
    """A byte of the memory and what each of its values stands for; ``way``: of the ways to end, which it belongs to."""

    purpose: int
    byte: int
    table: tuple[int, ...]
    way: int = 0


@dataclass(frozen=True)
class Rules:
    """How a game counts; without terms nothing is known of that.

    Attributes:
        wrap: what a score that falls has lost, as ``10000`` of a counter of four digits.
        least, most: the points that one frame can bring.
    """

    terms: tuple[Term, ...] = ()
    wrap: int = 0
    least: int = -BOUND
    most: int = BOUND

    @classmethod
    def read(
        cls,
        score: Mapping[int, Any],
        lives: Mapping[int, Any] | None = None,
        over: Any = (),
        wrap: int = 0,
        least: int = -BOUND,
        most: int = BOUND,
    ) -> Rules:
        """From the words of ``games.yaml``: sums of bytes for score and lives; ends, of which each is an and."""
        terms = [Term(SCORE, byte, _table(said)) for byte, said in score.items()]
        terms += [Term(LIVES, byte, _table(said)) for byte, said in (lives or {}).items()]
        for way, bytes_ in enumerate(over):
            terms += [Term(OVER, byte, _set(said), way) for byte, said in bytes_.items()]
        return cls(tuple(terms), wrap, least, most)

    @property
    def facts(self) -> list[int]:
        """For the native part, as ``native/game.h`` has them."""
        numbers = [self.wrap, self.least, self.most, len(self.terms)]
        for number, term in enumerate(self.terms):
            numbers += [term.purpose, term.byte, number, term.way]
        return numbers

    def tables(self) -> np.ndarray:
        """``(terms, 256) int32``, one at least."""
        return np.array([term.table for term in self.terms] or [(0,) * 256], np.int32)


def _table(said: Any) -> tuple[int, ...]:
    """``"100 bcd"``, ``"low3 + 1"``, with ``{192: 100}`` for values that mean something else."""
    words, others = (said[0], said[1]) if isinstance(said, list) else (said, {})
    found = re.fullmatch(r"(?:(-?\d+) )?(\w+)(?: \+ (\d+))?", words)
    assert found, words
    weight, kind, more = int(found[1] or 1), KINDS[found[2]], int(found[3] or 0)
    return tuple(others.get(byte, weight * kind(byte) + more) for byte in range(256))


def _set(said: Any) -> tuple[int, ...]:
    """``21``, ``"1-255"`` or ``"154, 160, 192"``."""
    values = set[int]()
    for part in str(said).split(", "):
        first, _, last = part.partition("-")
        values |= set(range(int(first), int(last or first) + 1))
    return tuple(int(byte in values) for byte in range(256))
