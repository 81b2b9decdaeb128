"""Transitions of up to n steps (Sutton and Barto, section 7.1), read from rings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dqnspeed.memory.buffers import LocalBuffers, SharedBuffers
from dqnspeed.memory.rings import Rings


@dataclass(slots=True)
class Batch:
    """B transitions. ``discounts`` is gamma**m, or 0 where the episode terminated within the m steps."""

    observations: np.ndarray  # (B, stack * C, ...) of the frames' dtype
    actions: np.ndarray  # (B,) int64
    rewards: np.ndarray  # (B,) float32, discounted sum of up to n_step rewards
    next_observations: np.ndarray  # (B, stack * C, ...)
    discounts: np.ndarray  # (B,) float32
    versions: np.ndarray | None = None  # (B,) int64, updates done to the weights that acted; None in a replay
    weights: np.ndarray | None = None  # (B,) float32, of each transition in the loss; None: all 1
    reprioritize: Callable[[np.ndarray], None] | None = None  # takes the absolute TD errors or losses (B,) float32

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays for a loss, by name; ``weights`` only if there are any."""
        names = ["observations", "actions", "rewards", "next_observations", "discounts"]
        if self.weights is not None:
            names.append("weights")
        return {name: getattr(self, name) for name in names}


class NStepRings(Rings):
    """Rings whose rows are read as n-step transitions, which stop at an episode's end.

    Args:
        n_step: number of rewards summed; ``gamma``: their discount.
    """

    def __init__(
        self,
        buffers: LocalBuffers | SharedBuffers,
        stack: int,
        n_step: int,
        gamma: float,
        concurrent: bool = False,
        lock: Any = None,
    ):
        super().__init__(buffers, stack, concurrent, lock)
        self.n_step = n_step
        self._gammas = (gamma ** np.arange(n_step + 1)).astype(np.float32)

    def blank(self, batch_size: int) -> Batch:
        """A batch of the shapes and dtypes of all others; its values are meaningless."""
        nowhere = np.zeros(batch_size, np.int64)
        return self._gather(nowhere, nowhere)[0]

    def _gather(self, lane: np.ndarray, row: np.ndarray) -> tuple[Batch, np.ndarray]:
        """The batch that starts at ``row`` and the oldest row it needed, ``(B,)``."""
        flat = self._flat
        start = self._index(lane, row)
        rewards = flat["rewards"][start].copy()
        terminated = flat["terminated"][start]
        running = ~(terminated | flat["truncated"][start])
        steps = np.ones(len(row), np.int64)
        for k in range(1, self.n_step):
            at = self._index(lane, row + k)
            rewards += running * self._gammas[k] * flat["rewards"][at]
            terminated = terminated | (running & flat["terminated"][at])
            steps += running
            running = running & ~(flat["terminated"][at] | flat["truncated"][at])
        observations, oldest = self._stacks(lane, row)
        next_observations, _ = self._stacks(lane, row + steps)
        discounts = self._gammas[steps] * ~terminated
        actions = flat["actions"][start].astype(np.int64)
        versions = flat["versions"][start] if "versions" in flat else None
        return Batch(observations, actions, rewards, next_observations, discounts, versions), oldest
