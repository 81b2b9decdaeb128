"""Transitions of up to n steps (Sutton and Barto, section 7.1), read from rings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnspeed.buffers.device_storage import HeldRings
from dqnspeed.buffers.gather import sum_rewards, windows
from dqnspeed.buffers.storage import LocalBuffers, SharedBuffers
from dqnspeed.execution.arrays import Array


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
    reprioritize: Callable[[Tensor], None] | None = None  # takes the absolute TD errors or losses (B,) float32

    def arrays(self) -> dict[str, Tensor]:
        """The tensors for a loss, by name; ``weights`` only if there are any."""
        names = ["observations", "actions", "rewards", "next_observations", "discounts"]
        if self.weights is not None:
            names.append("weights")
        return {name: getattr(self, name) for name in names}


class NStepRings(HeldRings):
    """Rings whose rows are read as n-step transitions, which stop at an episode's end.

    Args:
        n_step: number of rewards summed; ``gamma``: their discount.
        apart: as of :class:`~dqnspeed.buffers.device_storage.HeldRings`.
    """

    def __init__(
        self,
        buffers: LocalBuffers | SharedBuffers,
        stack: int,
        n_step: int,
        gamma: float,
        device: torch.device | None = None,
        apart: bool = False,
    ):
        super().__init__(buffers, stack, device, apart)
        self.n_step = n_step
        self._gammas = self.arrays.own((gamma ** np.arange(n_step + 1)).astype(np.float32))

    def blank(self, batch_size: int) -> Batch:
        """A batch of the shapes and dtypes of all others; its values are meaningless."""
        nowhere = 0 * self.arrays.arange(batch_size)
        return self._gather(nowhere, nowhere)

    def _gather(self, lane: Array, row: Array) -> Batch:
        """The batch that starts at the rows ``row`` ``(B,) int64`` of lanes ``(B,) int64``."""
        return self._batch(*self._gather_arrays(lane, row))

    def _gather_arrays(self, lane: Array, row: Array) -> tuple[Any, ...]:
        """The arrays of a batch, in its order."""
        arrays, xp, held = self.arrays, self.arrays.xp, self._held
        steps = windows(arrays, lane, row, self.n_step, self._rows)
        start = steps[:, 0]
        rewards, discounts, count = sum_rewards(arrays, held, steps, self._gammas)
        both = xp.concatenate([lane, lane]), xp.concatenate([row, row + count])
        actions = xp.asarray(arrays.take(held["actions"], start), dtype=xp.int64)
        versions = arrays.take(held["versions"], start) if "versions" in held else None
        stacks, size = self._stacks_at(self._stack_places(*both)), len(actions)
        return stacks[:size], actions, rewards, stacks[size:], discounts, versions

    def _batch(
        self, observations: Tensor, actions: Array, rewards: Array, following: Tensor, discounts: Array, versions: Array
    ) -> Batch:
        tensor = self.arrays.tensor
        versions = None if versions is None else tensor(versions)
        return Batch(observations, tensor(actions), tensor(rewards), following, tensor(discounts), versions)
