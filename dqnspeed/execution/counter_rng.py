"""Random numbers computed from a counter, equal on every device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dqnspeed.execution.arrays import Array, Arrays

BITS = 64
GOLDEN = 0x9E3779B97F4A7C15
MULTIPLIERS = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class CounterGenerator:
    """SplitMix64 (Steele, Lea and Flood 2014, figure 15): a number is a hash of its place in the sequence.

    The place is the whole state. It is an array on the device, so that a captured graph moves it on. Draws can continue
    on another device.
    """

    def __init__(self, seed: int | Sequence[int], arrays: Arrays):
        begin = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
        self.arrays = arrays
        self._place = arrays.own(np.array([_signed(begin)]))
        # An array: the compiler would turn a number into an index, which on a GPU has 32 bits.
        self._step = arrays.own(np.array([_signed(GOLDEN)]))

    def state_dict(self) -> dict[str, int]:
        return {"place": int(self._place[0])}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._place[:] = int(state["place"])

    def below(self, bound: int | Array, count: int) -> Any:
        """Integers ``(count,) int64``, equally likely from 0 to below ``bound``, which is at most 2**31."""
        drawn = self._draw(count)
        high, low = _shifted(drawn, 32), drawn & 0xFFFFFFFF
        return _shifted(high * bound + _shifted(low * bound, 32), 32)

    def uniform(self, count: int) -> Any:
        """Numbers ``(count,) float64`` from 0 to below 1."""
        return _shifted(self._draw(count), 11) * self.arrays.xp.asarray(2.0**-53, dtype=self.arrays.xp.float64)

    def exponential(self, count: int) -> Any:
        """Numbers ``(count,) float64`` with mean 1."""
        return -self.arrays.xp.log1p(-self.uniform(count))  # finite, since uniform numbers are below 1

    def _draw(self, count: int) -> Array:
        """Draw 64 random bits each, ``(count,) int64``."""
        mixed = self._place + self.arrays.arange(1, count + 1) * self._step
        self._place += _signed(GOLDEN * count)
        for shift, multiplier in zip((30, 27), MULTIPLIERS, strict=True):
            mixed = (mixed ^ _shifted(mixed, shift)) * _signed(multiplier)
        return mixed ^ _shifted(mixed, 31)


def _signed(bits: int) -> int:
    """Convert the last 64 bits to an integer in two's complement."""
    bits %= 1 << BITS
    return bits - (1 << BITS) if bits >> (BITS - 1) else bits


def _shifted(bits: Array, places: int) -> Array:
    """Shift to the right and fill with zeros."""
    return (bits >> places) & ((1 << (BITS - places)) - 1)
