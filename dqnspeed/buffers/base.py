"""Interfaces of buffers, which store experience and give batches of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from dqnspeed.buffers.device_storage import DeviceStorage


class Buffer(Protocol):
    """The interface of all buffers, for actors and the training loop.

    Attributes:
        storage: rows of all environments, which actors append to.
    """

    storage: DeviceStorage

    def rows_allowed(self) -> np.ndarray:
        """Row number of each environment at which its actor must wait for the learner, ``(num_envs,) float``."""

    def truncate_open_episodes(self, env_index: int, count: int) -> None:
        """Truncate the open episodes of ``count`` environments, which will not be continued."""

    def discard_pending(self) -> None:
        """Drop experience from before learning started, if the learner is on-policy."""

    def sample(self, batch_size: int) -> Any:
        """Next batch for the learner.

        Raises:
            LookupError: there is none yet.
        """

    def samples_in_batch(self, batch_size: int) -> int:
        """Transitions in the newest batch, without padding to ``batch_size``."""

    def blank(self, batch_size: int) -> Any:
        """Batch with the shapes and dtypes of all others; its values are meaningless."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    def resume_empty(self, updates: int) -> None:
        """Resume a run that made ``updates`` updates and did not save its buffer."""

    def close(self) -> None: ...
