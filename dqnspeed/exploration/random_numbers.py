"""Random numbers for policies, alike on the host and on a device."""

from __future__ import annotations

import numpy as np

from dqnspeed.execution.arrays import Array, Arrays
from dqnspeed.execution.counter_rng import CounterGenerator


class HostRandom:
    """Random numbers of a NumPy generator.

    Attributes:
        arrays: the library of the arrays that all methods return.
    """

    arrays = Arrays(None)

    def __init__(self, rng: np.random.Generator):
        self._rng = rng

    def below(self, bound: int, count: int) -> np.ndarray:
        """Integers ``(count,) int64``, equally likely from 0 to ``bound - 1``."""
        return self._rng.integers(bound, size=count)

    def uniform(self, count: int) -> np.ndarray:
        """Numbers ``(count,) float64`` from 0 to below 1."""
        return self._rng.random(count)

    def exponential(self, count: int) -> np.ndarray:
        """Numbers ``(count,) float64`` with mean 1."""
        return self._rng.exponential(size=count)


RandomNumbers = HostRandom | CounterGenerator  # on the host, or on a device


def draw(logits: Array, random: RandomNumbers) -> Array:
    """One index ``(N,) int64`` for each row of ``logits`` ``(N, K)``, with the probabilities of their softmax."""
    count, num_choices = logits.shape
    noise = random.exponential(count * num_choices).reshape(count, num_choices)
    # Gumbel-max trick: -log(noise) has a Gumbel distribution.
    found: Array = (logits - random.arrays.xp.log(noise)).argmax(1)
    return found
