"""What a memory is, how experience is stored and sampled, and what an option of ``replay`` is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from dqnspeed.buffers.ring_buffer import Rows
from dqnspeed.buffers.storage import LocalBuffers, SharedBuffers
from dqnspeed.config.registry import base_of
from dqnspeed.config.schema import ReplayConfig


class Buffer(Protocol):
    """The interface that the training loop, actors and videos use."""

    buffers: LocalBuffers | SharedBuffers
    device: torch.device  # where experience is held

    def discard_pending(self) -> None:
        """Drop what an on-policy learner must not learn from, as it came before learning started."""

    def append(self, rows: Rows, lane: int = 0) -> None:
        """Write one step of ``N`` environments to the lanes ``lane .. lane + N - 1``.

        Frames that are a tensor on ``device`` do not leave it, and nothing waits for it.
        """

    def sample(self, batch_size: int) -> Any:
        """The next batch for the learner."""

    def blank(self, batch_size: int) -> Any:
        """A batch of the shapes and dtypes of those that :meth:`sample` gives; its values are meaningless."""

    def samples_in_batch(self, batch_size: int) -> int:
        """Transitions in the batch that was drawn last, without the padding to ``batch_size``."""

    def recent_frames(self, count: int) -> np.ndarray:
        """Up to ``count`` frames ``(K, C, ...)`` spread evenly over what is stored."""

    def rows(self, lane: int) -> int:
        """Rows written to ``lane`` so far."""

    def rows_allowed(self) -> np.ndarray:
        """``(lanes,) float``: the rows of each lane at which an actor must wait for the learner."""

    def frames_of(self, lane: int, begin: int, end: int) -> np.ndarray:
        """Frames ``(K, C, ...)`` of the rows ``begin .. end - 1``, as far as they are still stored."""

    def cut(self, lane: int, count: int) -> list[tuple[int, int]]:
        """Close the open episodes of these lanes, which will not be continued; gives the lanes and rows of transitions
        that are none any more."""

    def writer_gone(self, lane: int) -> None:
        """Called when the process that wrote ``lane`` and others is dead."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    def resume_empty(self, updates: int) -> None:
        """Called in place of :meth:`load_state_dict` where what was stored is lost: the learner made ``updates``."""

    def close(self) -> None: ...


class DeviceBuffer(Buffer, Protocol):
    """A memory whose batches are drawn by operations on the device alone, which can be captured as a graph."""

    def prepare(self, batch_size: int) -> None:
        """Have all on the device that batches are drawn from.

        Raises:
            LookupError: there is nothing to draw yet.
        """

    def draw_batch(self, batch_size: int) -> Any:
        """The next batch."""

    def drawn(self) -> None:
        """Count a batch that was drawn."""


class OrderedBuffer(Buffer, Protocol):
    """A memory whose experience is learnt from in order, and only once."""

    taken: int  # transitions learnt from or discarded
    capacity: int  # transitions that may be waiting

    def due(self, batch_size: int) -> int:
        """Batches that can be sampled now."""

    def waiting(self) -> int:
        """Transitions not yet learnt from."""


@dataclass(frozen=True)
class ReplayArguments:
    """What every replay is made with.

    Args:
        buffers: of :func:`~dqnspeed.buffers.ring_buffer.ring_layout`.
        n_step: rewards summed in a transition; ``gamma``: their discount.
        device: where transitions are held and drawn, as tensors; ``None``: on the host, as NumPy's arrays.
        compiles: what draws and gathers tensors.
    """

    buffers: LocalBuffers | SharedBuffers
    stack: int
    n_step: int
    gamma: float
    seed: int = 0
    device: torch.device | None = None
    compiles: bool = False


@base_of("replay")
@dataclass(frozen=True)
class Replay(ReplayConfig):
    """An option of ``replay``: a memory that keeps experience and draws from it many times."""

    def make(self, arguments: ReplayArguments) -> Buffer:
        """The buffer, whose batches are :class:`~dqnspeed.buffers.n_step.Batch`."""
        raise NotImplementedError
