"""Prioritized replay: transitions drawn as often as their errors are large (Schaul et al. 2016)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.memory.base import Memory, Replay, ReplayArguments
from dqnspeed.memory.buffers import LocalBuffers, SharedBuffers
from dqnspeed.memory.n_step import Batch
from dqnspeed.memory.sum_tree import SumTree
from dqnspeed.memory.uniform import UniformReplay


class PrioritizedReplay(UniformReplay):
    """Rings sampled in proportion to priorities (section 3.3, proportional variant).

    A transition ``i`` is drawn with probability P(i) = p_i**alpha / sum_k p_k**alpha, where p_i is its error and
    ``priority_eps``, or for a new transition the largest priority there ever was. Its weight is (N P(i))**-beta over
    the largest of its batch.

    The tree of priorities is the learner's own, also where other processes write: each draw looks how far they got.

    Args:
        alpha: how much priorities count, 0: not at all.
        priority_eps: added to errors, more than 0, so that every transition can be drawn again.
        beta: how much of the bias the weights take back, at the first batch; ``beta_final`` after ``beta_updates``
            more, linear in between.
    """

    def __init__(
        self,
        buffers: LocalBuffers | SharedBuffers,
        stack: int,
        n_step: int,
        gamma: float,
        seed: int = 0,
        concurrent: bool = False,
        lock: Any = None,
        *,
        alpha: float,
        beta: float,
        beta_final: float,
        beta_updates: int,
        priority_eps: float,
    ):
        super().__init__(buffers, stack, n_step, gamma, seed, concurrent, lock)
        self._alpha, self._priority_eps = alpha, priority_eps
        self._beta, self._beta_final, self._beta_updates = beta, beta_final, beta_updates
        lanes = len(self._written)
        self._tree = SumTree(lanes * self._rows)
        self._priorities = self._tree.values.reshape(lanes, self._rows)  # p**alpha, 0: not to be drawn
        self._begin = np.zeros(lanes, np.int64)  # rows of each lane before these are not to be drawn any more,
        self._end = np.zeros(lanes, np.int64)  # and those from these on were not looked at
        self._max_priority = 1.0
        self._batches = 0

    @property
    def beta(self) -> float:
        """The exponent of the weights of the next batch."""
        progress = min(1.0, self._batches / self._beta_updates)
        return self._beta + progress * (self._beta_final - self._beta)

    def blank(self, batch_size: int) -> Batch:
        batch = super().blank(batch_size)
        batch.weights = np.ones(batch_size, np.float32)
        return batch

    def sample(self, batch_size: int) -> Batch:
        """Draw ``batch_size`` transitions with replacement, one from each of as many equal shares of the priorities.

        Raises:
            LookupError: nothing can be drawn yet.
        """
        while True:
            self._look()
            index = self._find(batch_size)
            lane, row = self._rows_at(index)
            batch, oldest = self._gather(lane, row)
            if not self._margin or (oldest > self.cursors()[lane] - self._rows).all():
                break
        chances = self._tree.values[index]
        batch.weights = ((chances / chances.min()) ** -self.beta).astype(np.float32)
        batch.reprioritize = partial(self._reprioritize, index, lane, row)
        self._batches += 1
        return batch

    def state_dict(self) -> dict[str, Any]:
        """What is stored, how it is prioritized, and the state of the draw."""
        self._look()
        state = super().state_dict()
        held = min(int(self._written.max(initial=0)), self._rows)
        return {
            **state,
            "priorities": self._priorities[:, :held],
            "begin": self._begin.copy(),
            "end": self._end.copy(),
            "max_priority": self._max_priority,
            "batches": self._batches,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._max_priority, self._batches = state["max_priority"], state["batches"]
        self._end[:] = state["end"]
        self._begin[:] = np.maximum(state["begin"], self._oldest_whole(self._written))
        lane, row = _each(self._begin, self._end)
        priorities = np.zeros_like(self._tree.values)
        priorities[self._index(lane, row)] = state["priorities"][lane, row % state["rows"]]
        self._tree.update(np.arange(len(priorities)), priorities)

    def resume_empty(self, updates: int) -> None:
        self._batches = updates

    def _find(self, count: int) -> np.ndarray:
        """Where ``count`` transitions stand, drawn in proportion to their priorities."""
        total = self._tree.total
        if not total:
            raise LookupError("the replay holds no complete transition yet")
        while True:
            index = self._tree.find((np.arange(count) + self._rng.random(count)) * (total / count))
            if self._tree.values[index].all():
                return index

    def _look(self) -> None:
        """Give the transitions that were completed since the last look the largest priority; forget overwritten ones.

        A row can be drawn once the rows that it leads to are there, and as long as those of its stack are.
        """
        written = self.cursors()
        begin = np.maximum(self._begin, self._oldest_whole(written))
        end = np.maximum(self._end, written - self.n_step)
        gone = self._index(*_each(self._begin, np.minimum(begin, self._end)))
        new = self._index(*_each(np.maximum(begin, self._end), end))
        self._begin, self._end = begin, end
        if len(gone) or len(new):
            drawable = self._flat["transition"][new]
            values = np.concatenate([np.zeros(len(gone)), drawable * self._max_priority**self._alpha])
            self._tree.update(np.concatenate([gone, new]), values)  # a new row may stand where one has gone

    def _reprioritize(self, index: np.ndarray, lane: np.ndarray, row: np.ndarray, errors: np.ndarray) -> None:
        """Set the priorities of the rows of a batch from their ``errors`` ``(B,)``, TD errors or losses.

        Rows that were overwritten stay as they are, and so do those whose error is not finite.
        """
        held = (row >= self._begin[lane]) & np.isfinite(errors)
        priorities = np.abs(errors[held].astype(np.float64)) + self._priority_eps
        self._max_priority = max(self._max_priority, float(priorities.max(initial=0.0)))
        self._tree.update(index[held], priorities**self._alpha)

    def _rows_at(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lanes and absolute row numbers of what stands at ``index``."""
        lane, at = np.divmod(index, self._rows)
        begin = self._begin[lane]
        return lane, begin + (at - begin) % self._rows


def _each(begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lane and number of each of the rows ``begin[lane] .. end[lane] - 1`` of all lanes."""
    counts = np.maximum(end - begin, 0)
    lane = np.repeat(np.arange(len(counts)), counts)
    return lane, np.arange(len(lane)) + (begin - counts.cumsum() + counts)[lane]


@register("replay", "prioritized")
@dataclass(frozen=True)
class Prioritized(Replay):
    """Transitions are as likely as their errors are large."""

    alpha: float = option("how much priorities count, 0: not at all", ge=0, le=1)
    beta: float = option("how much of the bias the weights take back at first", ge=0, le=1)
    beta_final: float = option("the same at last", ge=0, le=1)
    beta_updates: int = option("updates it takes from beta to beta_final", ge=1)
    priority_eps: float = option("added to every error, so that a transition can be drawn again", gt=0)

    def make(self, arguments: ReplayArguments) -> Memory:
        return PrioritizedReplay(
            **vars(arguments), alpha=self.alpha, beta=self.beta, beta_final=self.beta_final,
            beta_updates=self.beta_updates, priority_eps=self.priority_eps,
        )  # fmt: skip
