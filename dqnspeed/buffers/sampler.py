"""Interface of a sampler, which chooses the transitions of batches from a replay buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from torch import Tensor

from dqnspeed.execution.arrays import Array


class Window(NamedTuple):
    """Rows ``begin[i] .. end[i] - 1`` of each environment ``i``, ``(num_envs,) int64``.

    A sampler draws from them, but not the final frames of episodes: the stacks before these rows are stored still, and
    the n steps after them already.
    """

    begin: np.ndarray
    end: np.ndarray


class Sampler(Protocol):
    """Chooses transitions, on the device of a :class:`~dqnspeed.buffers.device_storage.DeviceStorage`.

    Attributes:
        weighted: draws have weights, and the errors of a batch become priorities.
    """

    weighted: bool

    def update(self, before: Window, now: Window) -> Mapping[str, np.ndarray]:
        """Record on the host that the rows of ``now`` can be drawn.

        Returns:
            Arrays for :meth:`store`, which cross together with new rows; no name may be a column's.
        """

    def store(self, arrays: Mapping[str, Array]) -> None:
        """Note the result of :meth:`update` on the device, in place: a captured graph reads the tensors that it saw."""

    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""

    def draw(self, count: int) -> tuple[Array, Array, Array | None]:
        """Draw ``count`` transitions by operations that do not wait for the device.

        Returns:
            Environments and row numbers, ``(count,) int64``, and weights in the loss, ``(count,) float32`` or ``None``.
        """

    def update_priorities(self, index: Array, errors: Tensor) -> None:
        """Take the ``errors`` ``(B,)``, TD errors or losses, of transitions that were drawn with weights.

        Args:
            index: positions of the transitions in the flat columns, ``(B,) int64``.
        """

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a :meth:`state_dict`; the storage has loaded its own before."""

    def resume_empty(self, updates: int) -> None:
        """Resume a run that made ``updates`` updates and did not save its replay."""
