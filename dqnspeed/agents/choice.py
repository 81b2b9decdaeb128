"""Actions by the outputs of a network."""

from __future__ import annotations

import numpy as np


class ActionChoice:
    """Chooses the best action or a draw from the policy, and sometimes a random action.

    Args:
        seed: seed of the draws; ``None``: another one each time.
        drawn: draw from the policy, whose logits the outputs are.
        epsilon: probability of a random action.
    """

    def __init__(self, seed: int | None, drawn: bool, epsilon: float = 0.0):
        self._rng, self._drawn, self._epsilon = np.random.default_rng(seed), drawn, epsilon

    def __call__(self, outputs: np.ndarray) -> np.ndarray:
        """Actions ``(N,)`` for outputs ``(N, num_actions)``."""
        # The largest sum of a logit and Gumbel noise is a draw from the softmax.
        noise = self._rng.gumbel(size=outputs.shape) if self._drawn else 0
        is_random = self._rng.random(len(outputs)) < self._epsilon
        random = self._rng.integers(outputs.shape[1], size=len(outputs))
        actions: np.ndarray = np.where(is_random, random, (outputs + noise).argmax(axis=1))
        return actions
