"""Prioritized sampling: transitions are drawn as often as their errors are large (Schaul et al. 2016)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from dqnspeed.buffers.device_storage import DeviceStorage
from dqnspeed.buffers.replay import Replay
from dqnspeed.buffers.ring_buffer import row_ranges
from dqnspeed.buffers.sampler import Sampler, Window
from dqnspeed.buffers.sum_tree import SumTree
from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.execution.arrays import Array, host, put
from dqnspeed.execution.counter_rng import CounterGenerator


@register("replay", "prioritized")
@dataclass(frozen=True)
class PrioritizedReplay(Replay):
    """Transitions are as likely as their errors are large."""

    alpha: float = option("exponent of the priorities, 0: all alike", ge=0, le=1)
    beta: float = option("exponent of the importance weights at first", ge=0, le=1)
    beta_final: float = option("exponent of the importance weights at last", ge=0, le=1)
    beta_updates: int = option("updates it takes from beta to beta_final", ge=1)
    priority_eps: float = option("added to every error, so that a transition can be drawn again", gt=0)

    def make(self, storage: DeviceStorage, seed: int) -> Sampler:
        return PrioritizedSampler(storage, seed, self)


class PrioritizedSampler:
    """Draws in proportion to priorities (section 3.3, proportional variant).

    A transition ``i`` is drawn with probability P(i) = p_i**alpha / sum_k p_k**alpha. Its priority p_i is the absolute
    error plus ``priority_eps``; a new transition has the largest priority there ever was. Its weight is (N P(i))**-beta
    divided by the largest weight of the batch. The exponent beta grows linearly with the batches.
    """

    weighted = True

    def __init__(self, storage: DeviceStorage, seed: int, options: PrioritizedReplay):
        self.storage, self._random = storage, CounterGenerator([seed, 4], storage.arrays)
        self._options = options
        self._tree = SumTree(storage.num_envs * storage.num_rows, storage.arrays)  # of p**alpha, 0: not to be drawn
        self._max_priority = storage.arrays.own(np.ones(1))
        self._batches = storage.arrays.own(np.zeros(1, np.int64))
        self._drawable = False

    @property
    def beta(self) -> Any:
        """Exponent of the weights of the next batch, ``(1,) float64``."""
        xp, first, final = self.storage.arrays.xp, self._options.beta, self._options.beta_final
        progress = xp.clip(xp.asarray(self._batches, dtype=xp.float64) / self._options.beta_updates, None, 1.0)
        return first + progress * (final - first)

    @property
    def priorities(self) -> Array:
        """Priorities to the power of alpha, ``(num_envs * num_rows,) float64``; 0 for rows that cannot be drawn."""
        return self._tree.values

    def update(self, before: Window, now: Window) -> Mapping[str, np.ndarray]:
        index = self.storage.index
        gone = index(*row_ranges(before.begin, np.minimum(now.begin, before.end)))
        new = index(*row_ranges(np.maximum(now.begin, before.end), now.end))
        gone = np.setdiff1d(gone, new, assume_unique=True)  # a new row may stand where one has gone
        drawable = np.concatenate([self.storage.flat["transition"][new], np.zeros(len(gone), bool)])
        return {"changed": np.concatenate([new, gone]), "drawable": drawable}

    def store(self, arrays: Mapping[str, Array]) -> None:
        if len(arrays["changed"]):
            self._tree.update(arrays["changed"], arrays["drawable"] * self._max_priority**self._options.alpha)

    def is_empty(self) -> bool:
        if not self._drawable:
            self._drawable = bool(self._tree.total > 0)
        return not self._drawable

    def draw(self, count: int) -> tuple[Array, Array, Array | None]:
        """One transition from each of ``count`` equal shares of the priorities."""
        arrays = self.storage.arrays
        shares = arrays.arange(count) + self._random.uniform(count)
        index = self._tree.find(shares * (self._tree.total / count))
        chances = arrays.take(self._tree.values, index)
        weights = arrays.xp.asarray((chances / chances.min()) ** -self.beta, dtype=arrays.xp.float32)
        self._batches += 1
        return index // self.storage.num_rows, index % self.storage.num_rows, weights

    def update_priorities(self, index: Array, errors: Tensor) -> None:
        """Set the priorities of transitions from their ``errors`` ``(B,)``, TD errors or losses.

        Of a transition that was drawn twice the last error counts. An error that is not finite changes nothing.
        """
        arrays, xp = self.storage.arrays, self.storage.arrays.xp
        last = xp.clip(xp.searchsorted(index, index, side="right") - 1, 0, None)
        # Draws come in ascending order, except where rounding misled the search in the tree.
        last = xp.where(index[last] == index, last, arrays.arange(len(index)))
        sizes = xp.abs(xp.asarray(arrays.taken(errors), dtype=xp.float64))[last]
        finite = xp.isfinite(sizes)
        priorities = xp.where(finite, sizes, 0.0) + self._options.priority_eps
        largest = xp.where(finite, priorities, 0.0).max()
        put(self._max_priority, slice(None), xp.maximum(self._max_priority, largest))
        before = arrays.take(self._tree.values, index)
        self._tree.update(index, xp.where(finite, priorities**self._options.alpha, before))

    def state_dict(self) -> dict[str, Any]:
        stored = min(int(self.storage.received.max(initial=0)), self.storage.num_rows)
        return {
            "random": self._random.state_dict(),
            "priorities": host(self._tree.values).reshape(-1, self.storage.num_rows)[:, :stored],
            "num_rows": self.storage.num_rows,
            "max_priority": float(self._max_priority[0]),
            "batches": int(self._batches[0]),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._random.load_state_dict(state["random"])
        put(self._max_priority, slice(None), state["max_priority"])
        put(self._batches, slice(None), state["batches"])
        env, row = row_ranges(*self.storage.window)
        priorities = np.zeros(len(self._tree.values))
        priorities[self.storage.index(env, row)] = state["priorities"][env, row % state["num_rows"]]
        arrays = self.storage.arrays
        self._tree.update(arrays.arange(len(priorities)), arrays.own(priorities))

    def resume_empty(self, updates: int) -> None:
        put(self._batches, slice(None), updates)
