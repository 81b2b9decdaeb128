"""Transitions of up to n steps (Sutton and Barto, section 7.1), read from a storage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from dqnspeed.buffers.device_storage import DeviceStorage
from dqnspeed.execution.arrays import Array


class Transitions(NamedTuple):
    """B transitions of up to n steps, as losses take them."""

    observations: Tensor  # (B, stack * C, ...) of the frames' dtype
    actions: Tensor  # (B,) int64
    rewards: Tensor  # (B,) float32, discounted sums of up to n rewards
    next_observations: Tensor  # (B, stack * C, ...)
    discounts: Tensor  # (B,) float32, gamma**n, or 0 where the episode terminated


@dataclass(slots=True)
class Batch:
    """B transitions, as tensors. ``discounts`` is gamma**m, or 0 where the episode terminated within the m steps."""

    observations: Tensor  # (B, stack * C, ...) of the frames' dtype
    actions: Tensor  # (B,) int64
    rewards: Tensor  # (B,) float32, discounted sum of up to n_step rewards
    next_observations: Tensor  # (B, stack * C, ...)
    discounts: Tensor  # (B,) float32
    versions: Tensor | None = None  # (B,) int64, updates done to the weights that acted; None in a replay
    weights: Tensor | None = None  # (B,) float32, of each transition in the loss; None: all 1
    update_priorities: Callable[[Tensor], None] | None = None  # takes the absolute TD errors or losses (B,) float32

    def arrays(self) -> dict[str, Tensor]:
        """Tensors for a loss, by name; ``weights`` only if there are any."""
        names = ["observations", "actions", "rewards", "next_observations", "discounts"]
        if self.weights is not None:
            names.append("weights")
        return {name: getattr(self, name) for name in names}


class NStepTransitions:
    """Rows of a storage as transitions of ``storage.n_step`` steps, which stop at an episode's end.

    Args:
        gamma: discount of a step.
    """

    def __init__(self, storage: DeviceStorage, gamma: float):
        self._storage = storage
        self._gammas = storage.arrays.own((gamma ** np.arange(storage.n_step + 1)).astype(np.float32))

    def batch(self, env: Array, row: Array) -> Batch:
        """Batch of the transitions that start at the rows ``row`` of environments ``env``, ``(B,) int64``."""
        return Batch(*self.tensors(env, row))

    def blank(self, batch_size: int) -> Batch:
        """Batch with the shapes and dtypes of all others; its values are meaningless."""
        nowhere = 0 * self._storage.arrays.arange(batch_size)
        return self.batch(nowhere, nowhere)

    def tensors(self, env: Array, row: Array) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:
        """Tensors of :meth:`batch`, in the order of :class:`Batch`."""
        storage, xp = self._storage, self._storage.arrays.xp
        take, tensor, held = storage.arrays.take, storage.arrays.tensor, storage.held
        window = storage.index(env[:, None], row[:, None] + storage.arrays.arange(storage.n_step))
        rewards, discounts, steps = self._sum_rewards(window)
        start = window[:, 0]
        actions = xp.asarray(take(held["actions"], start), dtype=xp.int64)
        versions = tensor(take(held["versions"], start)) if "versions" in held else None
        both = storage.stack_index(xp.concatenate([env, env]), xp.concatenate([row, row + steps]))
        stacks, size = storage.observations(both), len(actions)
        return stacks[:size], tensor(actions), tensor(rewards), stacks[size:], tensor(discounts), versions

    def _sum_rewards(self, window: Array) -> tuple[Array, Array, Array | int]:
        """Returns of up to n steps.

        Args:
            window: indices ``(B, n)`` of the rows of n steps.

        Returns:
            Discounted sums of rewards and discounts of the next observations, 0 after termination, ``(B,) float32``;
            number of steps to these observations, ``(B,) int64`` or one number for all.
        """
        arrays, held, flat = self._storage.arrays, self._storage.held, window.reshape(-1)
        rewards = arrays.take(held["rewards"], flat).reshape(window.shape)
        terminated = arrays.take(held["terminated"], flat).reshape(window.shape)
        if window.shape[1] == 1:
            return rewards[:, 0], self._gammas[1] * ~terminated[:, 0], 1
        ended = terminated | arrays.take(held["truncated"], flat).reshape(window.shape)
        running = ended.cumsum(1) <= ended  # no earlier step was the last
        rewards = running * self._gammas[:-1] * rewards
        total = rewards[:, 0]
        for k in range(1, window.shape[1]):  # in one order everywhere: a device's own sums have another
            total = total + rewards[:, k]
        steps = running.sum(1)
        terminates: Any = (terminated & running).any(1)
        return total, arrays.take(self._gammas, steps) * ~terminates, steps
