"""Base class of buffers whose rows are read once, in order, for learners that are (nearly) on-policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dqnspeed.buffers.device_storage import DeviceStorage


class OrderedBuffer:
    """Base class with the position of a learner that reads every row once.

    Args:
        capacity: transitions that may be waiting.

    Attributes:
        next_row: number of the row of each environment that is read next, ``(num_envs,) int64``.
        taken: transitions learnt from or discarded.
    """

    def __init__(self, storage: DeviceStorage, capacity: int):
        self.storage, self.capacity, self.taken = storage, capacity, 0
        self.next_row = np.zeros(storage.num_envs, np.int64)
        self.sampled = False  # whether a batch was sampled

    def due(self, batch_size: int) -> int:
        """Batches that can be sampled now."""
        raise NotImplementedError

    def waiting(self) -> int:
        """Transitions not yet taken, incomplete ones included."""
        return self.storage.count_transitions(self.next_row, self.storage.cursors())

    def take_until(self, row: np.ndarray) -> None:
        """Move the position to these rows; earlier transitions are taken."""
        self.taken += self.storage.count_transitions(self.next_row, row)
        self.next_row = row

    def discard_pending(self) -> None:
        self.take_until(self.storage.cursors())

    def rows_allowed(self) -> np.ndarray:
        return self.storage.rows_allowed()

    def truncate_open_episodes(self, env_index: int, count: int) -> None:
        env, row = self.storage.truncate_open_episodes(env_index, count)
        self.taken += int((row >= self.next_row[env]).sum())  # these rows are no longer transitions

    def samples_in_batch(self, batch_size: int) -> int:
        return batch_size

    def state_dict(self) -> dict[str, Any]:
        """Rows that are still to be read; before the first batch all rows, on which a learner measures backgrounds."""
        rows = self.storage.state_dict_from(self.next_row) if self.sampled else self.storage.state_dict()
        return {**rows, "next_row": self.next_row.copy(), "sampled": self.sampled}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.storage.load_state_dict(state)
        self.next_row, self.sampled = state["next_row"].copy(), state["sampled"]

    def resume_empty(self, updates: int) -> None:
        """Do nothing: batches do not depend on the number of updates."""

    def close(self) -> None:
        self.storage.close()
