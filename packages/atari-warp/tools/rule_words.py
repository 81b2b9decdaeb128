"""Shortest words of ``games.yaml`` for sets of values and tables of numbers."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from atari_warp.rules import KINDS

MAX_SLOPES = 3  # most frequent slopes that are tried for each kind of number


def set_words(values: Iterable[int]) -> Any:
    """Words for a set of values of a byte: ``21``, ``"1-255"``, ``"low 0"``."""
    wanted, best = set(values), ""
    for kind, of in KINDS.items():
        numbers = sorted({of(byte) for byte in wanted})
        if {byte for byte in range(256) if of(byte) in numbers} == wanted and min(numbers, default=0) >= 0:
            runs = _runs(numbers)
            words = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
            words = words if kind == "binary" else f"{kind} {words}"
            best = words if not best or len(words) < len(best) else best
    return int(best) if best.isdecimal() else best


def table_words(table: Sequence[int | None], free: bool) -> Any:
    """Words for the numbers of a byte's 256 values.

    Args:
        table: 256 numbers; ``None`` where any number will do.
        free: the numbers are known up to a constant.
    """
    known = [(byte, number) for byte, number in enumerate(table) if number is not None]
    usual = Counter(number for _, number in known).most_common(1)[0][0]
    lines = [(0, "binary", usual)]  # slope, kind of number, constant
    for kind, of in KINDS.items():
        slopes = Counter(
            (b - a) // (of(y) - of(x))
            for (x, a), (y, b) in itertools.pairwise(known)
            if of(x) != of(y) and (b - a) % (of(y) - of(x)) == 0
        )
        for slope, _ in slopes.most_common(MAX_SLOPES):
            constant = Counter(number - slope * of(byte) for byte, number in known).most_common(1)[0][0]
            if slope:
                lines.append((slope, kind, constant))
    lines = [line for line in lines if free or line[2] >= 0]
    exceptions = list[dict[int, set[int]]]()  # values whose numbers are not on the line, by number
    for slope, kind, constant in lines:
        exceptions.append({})
        for byte, number in known:
            if number != slope * KINDS[kind](byte) + constant:
                exceptions[-1].setdefault(number, set()).add(byte)
    best: tuple[Any, ...] = ()
    for (slope, kind, constant), others in sorted(zip(lines, exceptions, strict=True), key=lambda pair: len(pair[1])):
        if best and best[0] <= 4 * len(others):
            break
        shown = {set_words(bytes_): number - (constant if free else 0) for number, bytes_ in others.items()}
        words = f"{slope} {kind}".removeprefix("1 ") + (f" + {constant}" if constant and not free else "")
        cost = sum(3 + len(str(key)) for key in shown)
        if not best or cost < best[0]:
            best = cost, [words, shown] if shown else words
    return best[1]


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    """Runs of consecutive numbers in a sorted sequence."""
    runs = list[list[int]]()
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs
