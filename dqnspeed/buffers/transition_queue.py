"""Experience used once, in the order it came: for learners that are (nearly) on-policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dqnspeed.buffers.n_step import Batch, NStepRings
from dqnspeed.buffers.storage import LocalBuffers, SharedBuffers


class TransitionQueue(NStepRings):
    """n-step transitions, each sampled once, oldest first: the queue between actors and an actor-critic learner.

    Args:
        ahead: complete transitions that may be waiting; bounded by the length of the rings.
    """

    def __init__(
        self,
        buffers: LocalBuffers | SharedBuffers,
        stack: int,
        n_step: int,
        gamma: float,
        ahead: int,
        device: torch.device | None = None,
    ):
        super().__init__(buffers, stack, n_step, gamma, device)
        self._read: np.ndarray = np.zeros(len(self._written), np.int64)
        self.taken = 0  # transitions sampled or discarded
        self.capacity = ahead + len(self._written) * n_step  # transitions that may be waiting
        self._sampled = False

    def discard_pending(self) -> None:
        """Discard what came before learning started."""
        now = self.cursors()
        self.taken += self._transitions(self._read, now)
        self._read = now

    def cut(self, lane: int, count: int) -> list[tuple[int, int]]:
        unmade = super().cut(lane, count)
        self.taken += sum(row >= self._read[at] for at, row in unmade)  # agent steps that never wait any more
        return unmade

    def due(self, batch_size: int) -> int:
        """Batches that can be sampled now."""
        return len(self._unread()[0]) // batch_size

    def waiting(self) -> int:
        """Transitions not yet sampled, incomplete ones included."""
        return self._transitions(self._read, self.cursors())

    def sample(self, batch_size: int) -> Batch:
        """The ``batch_size`` oldest transitions.

        Raises:
            LookupError: there are fewer.
        """
        self._sampled = True
        lane, row = self._unread()
        if len(lane) < batch_size:
            raise LookupError("fewer transitions than a batch have come in")
        age = self.cursors()[lane] - row
        oldest = np.argsort(-age, kind="stable")[:batch_size]
        lane, row = lane[oldest], row[oldest]
        np.maximum.at(self._read, lane, row + 1)
        self.taken += batch_size
        self.receive()
        chosen = self._sent({"lane": lane, "row": row})
        return self._gather(chosen["lane"], chosen["row"])

    def state_dict(self) -> dict[str, Any]:
        """Before the first batch it holds every row, from which the learner measures its background."""
        rings = self._unlearnt(self._read) if self._sampled else super().state_dict()
        return {**rings, "read": self._read.copy(), "sampled": self._sampled}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._read, self._sampled = state["read"].copy(), state["sampled"]

    def _unread(self) -> tuple[np.ndarray, np.ndarray]:
        """Lanes and rows of complete transitions not yet sampled, by lane and then by row."""
        counts = np.maximum(self.cursors() - self.n_step - self._read, 0)
        lane = np.repeat(np.arange(len(counts)), counts)
        row = self._read[lane] + np.arange(len(lane)) - np.repeat(counts.cumsum() - counts, counts)
        complete = self._flat["transition"][self._index(lane, row)]
        return lane[complete], row[complete]
