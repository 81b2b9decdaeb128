"""The last frames of each environment, as the network sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class FrameStack:
    """Stacks of ``(N, stack * C, ...)`` built from frames of ``(N, C, ...)``.

    At a game's start the first frame is repeated, as in Gymnasium's ``FrameStackObservation``; the replay rebuilds
    its stacks by the same rule.
    """

    def __init__(self, num_envs: int, stack: int, frame_shape: tuple[int, ...], dtype: np.dtype):
        self._stacks = np.zeros((num_envs, stack, *frame_shape), dtype)
        self.observations = self._stacks.reshape(num_envs, stack * frame_shape[0], *frame_shape[1:])

    def push(self, frames: np.ndarray, first: np.ndarray) -> None:
        """Add the newest frames ``(N, C, ...)``; where ``first`` ``(N,) bool`` they start an episode."""
        self._stacks[:, :-1] = self._stacks[:, 1:]
        self._stacks[:, -1] = frames
        if first.any():
            self._stacks[first] = frames[first, None]

    def state_dict(self) -> dict[str, Any]:
        return {"stacks": self._stacks.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._stacks[:] = state["stacks"]
