"""Rules of a game evaluated on memories in NumPy, as the native code does in every frame."""

from __future__ import annotations

from typing import Any

import numpy as np
from atari_warp.rules import (
    ANY,
    BOUND,
    EARLIER,
    FELL,
    FINAL,
    INSTEAD,
    KEEP,
    LIVES,
    MORE,
    OVER,
    SAME,
    SCORE,
    SCORED,
    TOTAL,
    Rules,
)


def evaluate(
    rules: Rules, memories: np.ndarray, before: np.ndarray | None = None, lives: Any = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Evaluate rules on single frames.

    Rules about several frames in a row are not covered: ``lasting``, ``still``, ``again``, ``until`` and strokes of
    golf.

    Args:
        memories: ``(N, 128) uint8``, or ``(N, 384)`` with a Superchip's RAM from 256 on.
        before: memories one frame earlier, for rules that need them.
        lives: ``(N,)`` one frame earlier.

    Returns:
        Scores ``(N, 4)`` (score, ``instead``, ``final`` or ``BOUND``, points that the end adds), lives ``(N,)`` and
        game over ``(N,)``.
    """
    before = memories if before is None else before
    sums = np.zeros((14, len(memories)), np.int64)
    for k in {term.way for term in rules.terms if term.purpose == SAME}:
        bytes_ = memories[:, [term.byte for term in rules.terms if (term.purpose, term.way) == (SAME, k)]]
        sums[SCORE] += (bytes_ == bytes_[:, :1]).all(axis=1)
    ways, kept = dict[int, np.ndarray](), np.ones(len(memories), bool)
    earlier = sum(np.array(term.table)[before[:, term.byte]] for term in rules.terms if term.purpose == SCORE)
    for term in rules.terms:
        if term.purpose == SAME:
            continue
        stands_for = {
            EARLIER: before[:, rules.watched],
            SCORED: sums[SCORE] & 255,
            FELL: 1 * (sums[SCORE] < earlier),
        }
        values = stands_for[term.byte] if term.byte in stands_for else memories[:, term.byte]
        numbers = np.array(term.table)[values]
        if term.purpose == OVER:
            ways[term.way] = ways.get(term.way, np.array(True)) & numbers.astype(bool)
        elif term.purpose == KEEP:
            kept &= numbers.astype(bool)
        elif term.purpose not in (FINAL, MORE) or term.way == ANY:
            sums[term.purpose] += numbers
    if rules.falling:
        lives_now = lives - (before[:, rules.watched] - memories[:, rules.watched] == 1)
    else:
        keeps = any(term.purpose == KEEP for term in rules.terms)
        kept &= (sums[LIVES] == lives - 1) | (not rules.keep_one)
        lives_now = np.where(kept & keeps, lives, sums[LIVES])
    over = np.any(list(ways.values()), axis=0) if ways else np.zeros(len(memories), bool)
    over &= (sums[TOTAL] == rules.total) & (rules.lasting == 1)
    finals = {term.way: term.table[0] for term in rules.terms if term.purpose == FINAL}
    added = {term.way: term.table[0] for term in rules.terms if term.purpose == MORE}
    if ANY not in finals:
        sums[FINAL] = BOUND
    for way in sorted(ways, reverse=True):  # the first of several ways counts
        sums[MORE][ways[way]] = added.get(way, 0)
        if ANY not in finals:
            sums[FINAL][ways[way]] = finals.get(way, BOUND)
    sums[FINAL][~over], sums[MORE][~over] = BOUND, 0
    return sums[[SCORE, INSTEAD, FINAL, MORE]].T, lives_now, over


def points_between(rules: Rules, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Points of a frame.

    Args:
        before, after: scores ``(..., 4)`` of :func:`evaluate`, before and after the frame.
    """
    gained, instead, _, _ = np.moveaxis(after - before, -1, 0)
    gained = gained + rules.wrap * (gained < 0)
    counted = np.where(gained != 0, np.clip(gained, rules.least, rules.most), 0)
    final, more = after[..., 2], after[..., 3]
    return np.asarray(np.where(final != BOUND, final, np.where(instead != 0, instead, counted)) + more)
