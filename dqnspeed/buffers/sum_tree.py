"""Sum tree: numbers that can be updated, and a search in their running sum."""

from __future__ import annotations

import numpy as np

from dqnspeed.execution.arrays import Array, Arrays, put

BRANCHES = 64  # numbers in a block


class SumTree:
    """Numbers >= 0 and, level by level, the sums of their blocks, in float64.

    Every operation takes many numbers, and nothing waits for a device. A sum depends only on the numbers below it, so
    trees of the same numbers are equal bit for bit, whatever the order of updates.

    Attributes:
        values: the numbers, read only.
    """

    def __init__(self, size: int, arrays: Arrays):
        self.arrays = arrays
        self._blocks: list[Array] = []  # (blocks, BRANCHES) each, the numbers themselves first
        count = size
        while not self._blocks or count > 1:
            count = -(-count // BRANCHES)
            self._blocks.append(arrays.zeros((count, BRANCHES), np.dtype(np.float64)))
        self._total = arrays.zeros((1,), np.dtype(np.float64))
        self.values = self._blocks[0].reshape(-1)[:size]

    @property
    def total(self) -> Array:
        """Sum of all numbers, ``() float64``."""
        return self._total[0]

    def update(self, index: Array, values: Array) -> None:
        """Set the numbers at ``index`` ``(K,)``; an index that is given twice must come with the same value."""
        put(self.values, index, values)
        for blocks, above in zip(self._blocks, [*self._blocks[1:], self._total], strict=True):
            sums = above.reshape(-1)
            if len(blocks) <= len(index):
                put(sums, slice(len(blocks)), _sums(blocks))
            else:
                index = index // BRANCHES
                put(sums, index, _sums(self.arrays.take(blocks, index)))

    def find(self, values: Array) -> Array:
        """Find the first number at which the running sum exceeds each of ``values`` ``(B,)``, all below the total.

        A number that is 0, to which rounding would lead, is replaced by the largest number of its block.
        """
        arrays, xp, each = self.arrays, self.arrays.xp, self.arrays.arange(len(values))
        found = 0 * each
        for blocks in reversed(self._blocks):
            chosen = arrays.take(blocks, xp.clip(found, None, len(blocks) - 1))
            running = chosen.cumsum(1)
            child = xp.clip((running <= values[:, None]).sum(1), None, BRANCHES - 1)
            child = xp.where(chosen[each, child] == 0, chosen.argmax(1), child)
            values = values - (running[each, child] - chosen[each, child])
            found = found * BRANCHES + child
        return found


def _sums(blocks: Array) -> Array:
    # By halves: a device's own sums depend on how many blocks there are.
    while blocks.shape[1] > 1:
        blocks = blocks[:, ::2] + blocks[:, 1::2]
    return blocks[:, 0]
