"""Score, lives and end of a game, as bytes of the console's memory tell them."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    "glyph": lambda byte: byte // 8 if byte in range(0, 80, 8) else 0,  # where each digit's picture begins
    "signed": lambda byte: byte - 256 * (byte > 127),
    "bcd7": lambda byte: 10 * (byte >> 4 & 7) + (byte & 15),
    "blank": lambda byte: 10 * (byte >> 4) * (byte >> 4 != 10) + (byte & 15) * (byte & 15 != 10),  # 10 is a blank
    "mid3": lambda byte: byte >> 4 & 7,
    "low1": lambda byte: byte & 1,
    "bits": lambda byte: bin(byte).count("1"),
    "bits3": lambda byte: bin(byte & 7).count("1"),
    "sides": lambda byte: byte if byte < 128 else 10000 * (256 - byte),  # men of two sides, summed by themselves
}
SCORE, LIVES, OVER, KEEP, INSTEAD, FINAL, AGAIN, TOTAL, SAME, MORE, PAR, STROKES, UNTIL, STILL = range(14)
ANY = -1  # way to end
EARLIER = 128  # stands for the byte that is watched, as it was a frame ago
SCORED, FELL = 129, 130  # and for the score, and whether it fell
CHIP = 256  # the first byte of a Superchip's memory
BOUND = 2**30


@dataclass(frozen=True)
class Term:
    """A byte of the memory and what each of its values stands for; ``way``: of the ways to end, which it belongs to, or
    ``ANY``; or of the sets of bytes that may be the same, which."""

    purpose: int
    byte: int
    table: tuple[int, ...]
    way: int = 0


@dataclass(frozen=True)
class Rules:
    """How a game counts.

    Attributes:
        wrap: what a score that falls has lost, as ``10000`` of a counter of four digits.
        least, most: the points that a frame in which the score changes can bring.
        watched: a byte whose value a frame ago matters, or -1.
        first: lives at the start of a game, where the memory does not tell them then; 0: it does.
        falling: a life is lost whenever the watched byte falls by one, and no byte tells how many there are.
        keep_one: the loss of one life is not seen while lives are kept; else nothing is.
        lasting: frames in a row that a way to end has to hold for.
        left: lives that are told at the end.
        total: that the terms for it have to sum up to, or no way to end counts.
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
        """From the words of ``games.yaml``: sums of bytes for score and lives; ends, of which each is an and.

        ``before 64`` is what byte 64 was a frame ago; ``falling: 8`` takes a life when byte 8 falls by one; lives stay
        as they are while all bytes of ``keep`` have the values that are said of them; with ``keep one`` only the loss
        of one is not seen then, and with ``until`` nothing is before all its bytes had their values once. ``instead``
        is a second score, whose changes count in place of the first's, and ``final`` what the frame of the end brings
        in place of all else, as does ``pays`` of a way to end, and ``adds`` of one what it brings beside that. A frame
        in which all of ``again`` have their values brings what the frame before brought, and so does one of ``still``,
        after which score and lives are what they were, too. ``"0-7, 9"`` stands for each of these bytes, in ways to end
        and in ``total``, which is a sum and what is summed up. Each of ``same`` is a set of bytes that makes a point
        while all of them are equal. ``holes`` of golf name the bytes of a hole's number, of its par, and of the strokes
        that all holes took, which is shown while no par is. ``score`` in a way to end is the score, ``fell`` 1 where it
        fell, and bytes from 256 on are those of a Superchip.
        """
        numbers = dict(lives or {})
        first, watched, falling = numbers.pop("first", 0), numbers.pop("falling", -1), "falling" in (lives or {})
        terms = [Term(SCORE, byte, _table(said)) for byte, said in score.items()]
        keep, keep_one = numbers.pop("keep", {}), numbers.pop("keep one", {})
        terms += [Term(KEEP, byte, _set(said)) for byte, said in {**keep, **keep_one}.items()]
        terms += [Term(UNTIL, byte, _set(said)) for byte, said in numbers.pop("until", {}).items()]
        terms += [Term(LIVES, byte, _table(said)) for byte, said in numbers.items()]
        terms += [Term(INSTEAD, byte, _table(said)) for byte, said in (instead or {}).items()]
        terms += [Term(FINAL, byte, _table(said), ANY) for byte, said in (final or {}).items()]
        terms += [Term(AGAIN, byte, _set(said)) for byte, said in (again or {}).items()]
        terms += [Term(STILL, byte, _set(said)) for byte, said in (still or {}).items()]
        terms += [Term(SAME, byte, _table("binary"), k) for k, bytes_ in enumerate(same) for byte in numbers_of(bytes_)]
        terms += [Term(TOTAL, byte, _table(said)) for bytes_, said in total[1].items() for byte in numbers_of(bytes_)]
        if holes:
            watched = holes["number"]
            terms += [Term(PAR, holes["par"], _table("bcd")), Term(STROKES, holes["strokes"], _table("bcd"))]
        for way, bytes_ in enumerate(over):
            for byte, said in bytes_.items():
                if byte in ("pays", "adds"):
                    terms.append(Term(FINAL if byte == "pays" else MORE, 0, (said,) * 256, way))
                elif byte in ("score", "fell"):
                    terms.append(Term(OVER, SCORED if byte == "score" else FELL, _set(said), way))
                elif str(byte).startswith("before "):
                    watched = int(byte.removeprefix("before "))
                    terms.append(Term(OVER, EARLIER, _set(said), way))
                else:
                    each = [byte] if isinstance(byte, int) else numbers_of(byte)
                    terms += [Term(OVER, one, _set(said), way) for one in each]
        terms.sort(key=lambda term: term.purpose)  # a way's stand side by side
        return cls(tuple(terms), wrap, least, most, watched, first, falling, bool(keep_one), lasting, total[0], left)

    def of(
        self, memories: np.ndarray, before: np.ndarray | None = None, lives: Any = 0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scores ``(N, 4)``, lives ``(N,)`` and end ``(N,)`` of memories ``(N, 128) uint8``; the second score is that
        of ``instead``, the third that of ``final``, or ``BOUND`` where it does not count, the fourth what an end adds.

        What the native part does at every frame; here for what is asked beside the play, which is one frame, so that
        nothing is ``lasting``, ``still`` or ``again``, lives wait for nothing, and no strokes of a hole are counted.
        ``before``: the memories a frame ago, and ``lives`` ``(N,)`` then; for rules that need them. Memories of ``(N,
        384)`` have a Superchip's from 256 on.
        """
        before = memories if before is None else before
        sums = np.zeros((14, len(memories)), np.int64)
        for k in {term.way for term in self.terms if term.purpose == SAME}:
            bytes_ = memories[:, [term.byte for term in self.terms if (term.purpose, term.way) == (SAME, k)]]
            sums[SCORE] += (bytes_ == bytes_[:, :1]).all(axis=1)
        ways, kept = dict[int, np.ndarray](), np.ones(len(memories), bool)
        earlier = sum(np.array(term.table)[before[:, term.byte]] for term in self.terms if term.purpose == SCORE)
        for term in self.terms:
            if term.purpose == SAME:
                continue
            stands_for = {
                EARLIER: before[:, self.watched],
                SCORED: sums[SCORE] & 255,
                FELL: 1 * (sums[SCORE] < earlier),
            }
            at = stands_for[term.byte] if term.byte in stands_for else memories[:, term.byte]
            said = np.array(term.table)[at]
            if term.purpose == OVER:
                ways[term.way] = ways.get(term.way, np.array(True)) & said.astype(bool)
            elif term.purpose == KEEP:
                kept &= said.astype(bool)
            elif term.purpose not in (FINAL, MORE) or term.way == ANY:
                sums[term.purpose] += said
        if self.falling:
            now = lives - (before[:, self.watched] - memories[:, self.watched] == 1)
        else:
            keeps = any(term.purpose == KEEP for term in self.terms)
            kept &= (sums[LIVES] == lives - 1) | (not self.keep_one)
            now = np.where(kept & keeps, lives, sums[LIVES])
        over = np.any(list(ways.values()), axis=0) if ways else np.zeros(len(memories), bool)
        over &= (sums[TOTAL] == self.total) & (self.lasting == 1)
        finals = {term.way: term.table[0] for term in self.terms if term.purpose == FINAL}
        added = {term.way: term.table[0] for term in self.terms if term.purpose == MORE}
        if ANY not in finals:
            sums[FINAL] = BOUND
        for way in sorted(ways, reverse=True):  # of several that hold the first counts
            sums[MORE][ways[way]] = added.get(way, 0)
            if ANY not in finals:
                sums[FINAL][ways[way]] = finals.get(way, BOUND)
        sums[FINAL][~over], sums[MORE][~over] = BOUND, 0
        return sums[[SCORE, INSTEAD, FINAL, MORE]].T, now, over

    def points(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Of the scores ``(..., 4)`` before a frame and after it."""
        gained, instead, _, _ = np.moveaxis(after - before, -1, 0)
        gained = gained + self.wrap * (gained < 0)
        counted = np.where(gained != 0, np.clip(gained, self.least, self.most), 0)
        final, more = after[..., 2], after[..., 3]
        return np.asarray(np.where(final != BOUND, final, np.where(instead != 0, instead, counted)) + more)

    @property
    def facts(self) -> list[int]:
        """For the native part, as ``native/game.h`` has them."""
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
        """``(terms, 256) int32``, one at least."""
        return np.array([term.table for term in self.terms] or [(0,) * 256], np.int32)


def _table(said: Any) -> tuple[int, ...]:
    """``"100 bcd"``, ``"low3 + 1"``, with ``{192: 100, low 10: 0}`` for values that mean something else."""
    words, others = (said[0], said[1]) if isinstance(said, list) else (said, {})
    found = re.fullmatch(r"(?:(-?\d+) )?(\w+)(?: \+ (\d+))?", words)
    assert found, words
    weight, kind, more = int(found[1] or 1), KINDS[found[2]], int(found[3] or 0)
    table = [weight * kind(byte) + more for byte in range(256)]
    for values, number in others.items():
        for byte in np.flatnonzero(_set(values)):
            table[byte] = number
    return tuple(table)


def numbers_of(said: Any) -> list[int]:
    """``7``, or ``"0-7, 9"``."""
    return [byte for byte, belongs in enumerate(_set(said)) if belongs]


def _set(said: Any) -> tuple[int, ...]:
    """``21``, ``"1-255"``, ``"154, 160, 192"``, or ``"low 0"``: all bytes whose low digit is 0."""
    words = str(said)
    kind, _, listed = ("binary", "", words) if words[0].isdecimal() else words.partition(" ")
    values = set[int]()
    for part in listed.split(", "):
        first, _, last = part.partition("-")
        values |= set(range(int(first), int(last or first) + 1))
    return tuple(int(KINDS[kind](byte) in values) for byte in range(256))


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    """Sorted numbers, in lists of such as follow one another."""
    runs = list[list[int]]()
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def say_set(values: Iterable[int]) -> Any:
    """A set of values of a byte in the fewest words: ``21``, ``"1-255"``, ``"low 0"``."""
    wanted, best = set(values), ""
    for kind, of in KINDS.items():
        numbers = sorted({of(byte) for byte in wanted})
        if {byte for byte in range(256) if of(byte) in numbers} == wanted and min(numbers, default=0) >= 0:
            runs = _runs(numbers)
            words = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
            words = words if kind == "binary" else f"{kind} {words}"
            best = words if not best or len(words) < len(best) else best
    return int(best) if best.isdecimal() else best


def say_table(table: Sequence[int | None], free: bool) -> Any:
    """256 numbers, ``None`` where any will do, in the words of ``games.yaml``; ``free``: but for a constant."""
    known = [(byte, number) for byte, number in enumerate(table) if number is not None]
    usual = Counter(number for _, number in known).most_common(1)[0][0]
    ways = [(0, "binary", usual)]
    for kind, of in KINDS.items():
        slopes = Counter(
            (b - a) // (of(y) - of(x))
            for (x, a), (y, b) in itertools.pairwise(known)
            if of(x) != of(y) and (b - a) % (of(y) - of(x)) == 0
        )
        for slope, _ in slopes.most_common(3):
            more = Counter(number - slope * of(byte) for byte, number in known).most_common(1)[0][0]
            if slope:
                ways.append((slope, kind, more))
    best: tuple[Any, ...] = ()
    ways = [way for way in ways if free or way[2] >= 0]
    odd = list[dict[int, set[int]]]()  # of each way the values that mean something else
    for slope, kind, more in ways:
        odd.append({})
        for byte, number in known:
            if number != slope * KINDS[kind](byte) + more:
                odd[-1].setdefault(number, set()).add(byte)
    for (slope, kind, more), others in sorted(zip(ways, odd, strict=True), key=lambda pair: len(pair[1])):
        if best and best[0] <= 4 * len(others):
            break
        shown = {say_set(bytes_): number - (more if free else 0) for number, bytes_ in others.items()}
        words = f"{slope} {kind}".removeprefix("1 ") + (f" + {more}" if more and not free else "")
        cost = sum(3 + len(str(key)) for key in shown)
        if not best or cost < best[0]:
            best = cost, [words, shown] if shown else words
    return best[1]
