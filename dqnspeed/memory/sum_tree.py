"""A sum tree: numbers that can be updated, and a search in their running sum."""

from __future__ import annotations

import numpy as np

BRANCHES = 16  # numbers in a block
TOP = 4096  # most sums at the top level


class SumTree:
    """Numbers >= 0 and, level by level, the sums of their blocks, in float64.

    Every operation takes many numbers at once. A sum depends only on the numbers below it, so trees of the same numbers
    are equal bit for bit, whatever the order of updates.
    """

    def __init__(self, size: int):
        self._blocks: list[np.ndarray] = []  # (blocks, BRANCHES) each, the numbers themselves first
        count = size
        while not self._blocks or count > TOP:
            count = -(-count // BRANCHES)
            self._blocks.append(np.zeros((count, BRANCHES)))
        self._top = np.zeros(count)
        self.values = self._blocks[0].reshape(-1)[:size]  # read only; written by :meth:`update`

    @property
    def total(self) -> float:
        """The sum of all numbers."""
        return float(self._top.cumsum()[-1])

    def update(self, index: np.ndarray, values: np.ndarray | float) -> None:
        """Set the numbers at ``index`` ``(K,)``; of an index given twice the last value counts."""
        self.values[index] = values
        for blocks, above in zip(self._blocks, [*self._blocks[1:], self._top], strict=True):
            sums = above.reshape(-1)
            if len(blocks) <= len(index):
                sums[: len(blocks)] = _sums(blocks)
            else:
                index = index // BRANCHES
                sums[index] = _sums(blocks.take(index, axis=0))

    def find(self, values: np.ndarray) -> np.ndarray:
        """Where the running sum of the numbers first exceeds each of ``values`` ``(B,)``, which are below the total.

        By rounding, the number found may be a 0 if a value is at the end of a block.
        """
        found, rest = _search(self._top[None], values, np.zeros(len(values), np.int64))
        for blocks in reversed(self._blocks):
            found = np.minimum(found, len(blocks) - 1)  # rounding may lead to the end of the last block
            chosen = blocks.take(found, axis=0)
            child, rest = _search(chosen, rest, np.arange(len(chosen)))
            found = found * BRANCHES + child
        index: np.ndarray = np.minimum(found, len(self.values) - 1)
        return index


def _sums(blocks: np.ndarray) -> np.ndarray:
    # In a fixed order, and with less overhead than blocks.sum(axis=1).
    sums: np.ndarray = np.einsum("ij->i", blocks)
    return sums


def _search(blocks: np.ndarray, values: np.ndarray, block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the running sum of ``blocks[block[i]]`` exceeds ``values[i]``, and the rest of ``values[i]`` before it.

    All blocks are searched in one running sum, which takes less time than many short ones.
    """
    length = blocks.shape[1]
    running = np.zeros(blocks.size + 1)
    np.cumsum(blocks.reshape(-1), out=running[1:])
    first = block * length
    sought = running[first] + values
    at = np.minimum(running.searchsorted(sought, side="right") - 1, first + length - 1)
    return at - first, sought - running[at]
