"""Prioritized replay: transitions drawn as often as their errors are large (Schaul et al. 2016)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnspeed.buffers.base import Buffer, Replay, ReplayArguments
from dqnspeed.buffers.n_step import Batch
from dqnspeed.buffers.ring_buffer import each
from dqnspeed.buffers.sum_tree import SumTree
from dqnspeed.buffers.uniform import NStepReplay
from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.execution.arrays import Array, host


class PrioritizedReplay(NStepReplay):
    """Rings sampled in proportion to priorities (section 3.3, proportional variant).

    A transition ``i`` is drawn with probability P(i) = p_i**alpha / sum_k p_k**alpha, where p_i is its error and
    ``priority_eps``, or for a new transition the largest priority there ever was. Its weight is (N P(i))**-beta over
    the largest of its batch.

    Args:
        alpha: how much priorities count, 0: not at all.
        priority_eps: added to errors, more than 0, so that every transition can be drawn again.
        beta: how much of the bias the weights take back, at the first batch; ``beta_final`` after ``beta_updates``
            more, linear in between.
    """

    def __init__(
        self,
        arguments: ReplayArguments,
        *,
        alpha: float,
        beta: float,
        beta_final: float,
        beta_updates: int,
        priority_eps: float,
    ):
        super().__init__(arguments)
        self._alpha, self._priority_eps = alpha, priority_eps
        self._beta, self._beta_final, self._beta_updates = beta, beta_final, beta_updates
        lanes = len(self._written)
        self._tree = SumTree(lanes * self._rows, self.arrays)  # of p**alpha, 0: not to be drawn
        self._max_priority = self.arrays.own(np.ones(1))
        self._batches = self.arrays.own(np.zeros(1, np.int64))
        self._drawable = False

    @property
    def beta(self) -> Array:
        """``(1,) float64``, the exponent of the weights of the next batch."""
        xp = self.arrays.xp
        progress = xp.clip(xp.asarray(self._batches, dtype=xp.float64) / self._beta_updates, None, 1.0)
        return self._beta + progress * (self._beta_final - self._beta)

    def blank(self, batch_size: int) -> Batch:
        batch = super().blank(batch_size)
        batch.weights = torch.ones(batch_size, device=self.device)
        return batch

    def draw_batch(self, batch_size: int) -> Batch:
        """One transition from each of as many equal shares of the priorities."""
        *arrays, index, weights = (self._joined or self._draw_arrays)(batch_size)
        batch = self._batch(*arrays)
        batch.weights = self.arrays.tensor(weights)
        batch.reprioritize = partial(self._reprioritize, index, int(self._received.sum()))
        return batch

    def check_drawable(self) -> None:
        if not self._drawable:
            self._drawable = bool(self._tree.total > 0)
            if not self._drawable:
                raise LookupError("the replay holds no complete transition yet")

    def state_dict(self) -> dict[str, Any]:
        """What is stored, how it is prioritized, and the state of the draw."""
        state = super().state_dict()
        held = min(int(self._written.max(initial=0)), self._rows)
        return {
            **state,
            "priorities": host(self._tree.values).reshape(-1, self._rows)[:, :held],
            "begin": self._begin.copy(),
            "end": self._end.copy(),
            "max_priority": float(self._max_priority[0]),
            "batches": int(self._batches[0]),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._max_priority[:], self._batches[:] = state["max_priority"], state["batches"]
        self._begin[:], self._end[:] = state["begin"], state["end"]
        self._move_on()
        lane, row = each(self._begin, self._end)
        priorities = np.zeros(len(self._tree.values))
        priorities[self._index(lane, row)] = state["priorities"][lane, row % state["rows"]]
        self._tree.update(self.arrays.arange(len(priorities)), self.arrays.own(priorities))

    def resume_empty(self, updates: int) -> None:
        self._batches[:] = updates

    def _draw_arrays(self, count: int) -> tuple[Any, ...]:
        """With where the transitions stand, and their weights."""
        shares = self.arrays.arange(count) + self._random.uniform(count)
        index = self._tree.find(shares * (self._tree.total / count))
        xp, chances = self.arrays.xp, self.arrays.take(self._tree.values, index)
        weights = xp.asarray((chances / chances.min()) ** -self.beta, dtype=xp.float32)
        self._batches += 1
        return *self._gather_arrays(index // self._rows, index % self._rows), index, weights

    def _news(self, before: np.ndarray) -> dict[str, np.ndarray]:
        """With the rows that can be drawn from now on, as what they lead to is there, and those that cannot any more.

        A new row may stand where one has gone, and is named alone.
        """
        news = super()._news(before)
        oldest, begin = self._move_on()
        end = np.maximum(self._end, self._received - self.n_step)
        gone = self._index(*each(oldest, np.minimum(begin, self._end)))
        new = self._index(*each(np.maximum(begin, self._end), end))
        self._end = end
        gone = np.setdiff1d(gone, new, assume_unique=True)
        drawable = np.concatenate([self._flat["transition"][new], np.zeros(len(gone), bool)])
        return {**news, "changed": np.concatenate([new, gone]), "drawable": drawable}

    def _take_in(self, there: Mapping[str, Array]) -> None:
        super()._take_in(there)
        if len(there["changed"]):
            self._tree.update(there["changed"], there["drawable"] * self._max_priority**self._alpha)

    def _reprioritize(self, index: Array, received: int, errors: Tensor) -> None:
        """Set the priorities of the rows of a batch from their ``errors`` ``(B,)``, TD errors or losses.

        Of a row that was drawn twice the last error counts. Rows whose error is not finite stay as they are, and all
        do if others were ``received`` since, which may stand in their place.
        """
        if received != int(self._received.sum()):
            return
        arrays, xp, own = self.arrays, self.arrays.xp, self.arrays.arange(len(index))
        last = xp.clip(xp.searchsorted(index, index, side="right") - 1, 0, None)  # draws come in ascending order,
        last = xp.where(index[last] == index, last, own)  # but for those that rounding misled
        sizes = xp.abs(xp.asarray(arrays.taken(errors), dtype=xp.float64))[last]
        finite = xp.isfinite(sizes)
        priorities = xp.where(finite, sizes, 0.0) + self._priority_eps
        largest = xp.where(finite, priorities, 0.0).max()
        self._max_priority[:] = xp.maximum(self._max_priority, largest)
        before = arrays.take(self._tree.values, index)
        self._tree.update(index, xp.where(finite, priorities**self._alpha, before))


@register("replay", "prioritized")
@dataclass(frozen=True)
class Prioritized(Replay):
    """Transitions are as likely as their errors are large."""

    alpha: float = option("how much priorities count, 0: not at all", ge=0, le=1)
    beta: float = option("how much of the bias the weights take back at first", ge=0, le=1)
    beta_final: float = option("the same at last", ge=0, le=1)
    beta_updates: int = option("updates it takes from beta to beta_final", ge=1)
    priority_eps: float = option("added to every error, so that a transition can be drawn again", gt=0)

    def make(self, arguments: ReplayArguments) -> Buffer:
        return PrioritizedReplay(
            arguments, alpha=self.alpha, beta=self.beta, beta_final=self.beta_final,
            beta_updates=self.beta_updates, priority_eps=self.priority_eps,
        )  # fmt: skip
