"""What a memory is: what is remembered of experience, and how it is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from dqnspeed.memory.buffers import LocalBuffers, SharedBuffers
from dqnspeed.memory.rings import Rows


class Memory(Protocol):
    """What the training loop, actors and videos ask of every memory."""

    buffers: LocalBuffers | SharedBuffers

    def discard_pending(self) -> None:
        """Forget what has come in so far, where it must not be learnt from: learning has not begun."""

    def append(self, rows: Rows, lane: int = 0) -> None:
        """Write one step of ``N`` environments to the lanes ``lane .. lane + N - 1``."""

    def sample(self, batch_size: int) -> Any:
        """The next batch for the learner."""

    def blank(self, batch_size: int) -> Any:
        """A batch of the shapes and dtypes of those that :meth:`sample` gives; its values mean nothing."""

    def recent_frames(self, count: int) -> np.ndarray:
        """Up to ``count`` frames ``(K, C, ...)`` spread evenly over what is stored."""

    def rows(self, lane: int) -> int:
        """Rows written to ``lane`` so far."""

    def frames_of(self, lane: int, begin: int, end: int) -> np.ndarray:
        """Frames ``(K, C, ...)`` of the rows ``begin .. end - 1``, as far as they are held."""

    def cut(self, lane: int, count: int) -> None:
        """Close the episodes of these lanes: nobody will go on with them."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...


class OrderedMemory(Memory, Protocol):
    """A memory that is learnt from in the order in which experience comes, and then forgotten."""

    taken: int  # transitions learnt from or discarded
    capacity: int  # transitions that may wait

    def due(self, batch_size: int) -> int:
        """Batches to learn from now."""

    def waiting(self) -> int:
        """Transitions that have not been learnt from."""
