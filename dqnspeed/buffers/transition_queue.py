"""Queue of transitions, each used once in the order it came."""

from __future__ import annotations

import numpy as np

from dqnspeed.buffers.device_storage import DeviceStorage
from dqnspeed.buffers.n_step import Batch, NStepTransitions
from dqnspeed.buffers.ordered import OrderedBuffer
from dqnspeed.buffers.ring_buffer import row_ranges


class TransitionQueue(OrderedBuffer):
    """n-step transitions, each sampled once, oldest first: the queue between actors and an actor-critic learner.

    Args:
        gamma: discount of a step.
        max_waiting: complete transitions that may be waiting; bounded by the length of the rings.
    """

    def __init__(self, storage: DeviceStorage, gamma: float, max_waiting: int):
        super().__init__(storage, capacity=max_waiting + storage.num_envs * storage.n_step)
        self._transitions = NStepTransitions(storage, gamma)

    def due(self, batch_size: int) -> int:
        return len(self._unread()[0]) // batch_size

    def sample(self, batch_size: int) -> Batch:
        """The ``batch_size`` oldest transitions.

        Raises:
            LookupError: there are fewer.
        """
        self.sampled = True
        env, row = self._unread()
        if len(env) < batch_size:
            raise LookupError("fewer transitions than a batch have come in")
        age = self.storage.cursors()[env] - row
        oldest = np.argsort(-age, kind="stable")[:batch_size]
        env, row = env[oldest], row[oldest]
        np.maximum.at(self.next_row, env, row + 1)
        self.taken += batch_size
        self.storage.receive()
        sent = self.storage.send({"env": env, "row": row})
        return self._transitions.batch(sent["env"], sent["row"])

    def blank(self, batch_size: int) -> Batch:
        return self._transitions.blank(batch_size)

    def _unread(self) -> tuple[np.ndarray, np.ndarray]:
        """Environments and rows of complete transitions not yet sampled, by environment and then by row."""
        env, row = row_ranges(self.next_row, self.storage.cursors() - self.storage.n_step)
        complete = self.storage.flat["transition"][self.storage.index(env, row)]
        return env[complete], row[complete]
