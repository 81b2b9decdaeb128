"""Experience used once, in the order it came: for learners that are on-policy, or nearly so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dqnspeed.memory.buffers import LocalBuffers, SharedBuffers
from dqnspeed.memory.n_step import Batch, NStepRings


class Stream(NStepRings):
    """n-step pieces, each handed out once, the oldest first: the queue between actors and an actor-critic learner.

    Args:
        ahead: complete transitions that may wait; actors must not be further ahead than the rings are long.
    """

    def __init__(
        self,
        buffers: LocalBuffers | SharedBuffers,
        stack: int,
        n_step: int,
        gamma: float,
        ahead: int,
        lock: Any = None,
    ):
        super().__init__(buffers, stack, n_step, gamma, lock=lock)
        self._read: np.ndarray = np.zeros(len(self._written), np.int64)
        self.taken = 0  # transitions handed out or passed over
        self.capacity = ahead + len(self._written) * n_step  # that may wait
        self._sampled = False

    def discard_pending(self) -> None:
        """What is there came before learning began, and is not learnt from."""
        now = self._cursors()
        self.taken += self._transitions(self._read, now)
        self._read = now

    def due(self, batch_size: int) -> int:
        """Batches that can be taken now."""
        return len(self._unread()[0]) // batch_size

    def waiting(self) -> int:
        """Transitions that have not been handed out, those that lack their last steps included."""
        return self._transitions(self._read, self._cursors())

    def sample(self, batch_size: int) -> Batch:
        """The ``batch_size`` oldest pieces.

        Raises:
            LookupError: there are not so many.
        """
        self._sampled = True
        lane, row = self._unread()
        if len(lane) < batch_size:
            raise LookupError("not so many pieces have come in yet")
        age = self._cursors()[lane] - row
        oldest = np.argsort(-age, kind="stable")[:batch_size]
        lane, row = lane[oldest], row[oldest]
        np.maximum.at(self._read, lane, row + 1)
        self.taken += batch_size
        return self._gather(lane, row)[0]

    def state_dict(self) -> dict[str, Any]:
        """Before the first batch of all it holds every row, on which the learner is going to measure its background."""
        rings = self._unlearnt(self._read) if self._sampled else super().state_dict()
        return {**rings, "read": self._read.copy(), "sampled": self._sampled}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._read, self._sampled = state["read"].copy(), state.get("sampled", False)

    def _unread(self) -> tuple[np.ndarray, np.ndarray]:
        """Lanes and rows of complete transitions that were not handed out, by lane and then by row."""
        counts = np.maximum(self._cursors() - self.n_step - self._read, 0)
        lane = np.repeat(np.arange(len(counts)), counts)
        row = self._read[lane] + np.arange(len(lane)) - np.repeat(counts.cumsum() - counts, counts)
        complete = self._flat["transition"][self._index(lane, row)]
        return lane[complete], row[complete]
