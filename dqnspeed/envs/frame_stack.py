"""The last frames of each environment, as the network sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnspeed.envs.backends.base import AnyArray


class FrameStack:
    """Stacks of ``(N, stack * C, ...)`` built from frames of ``(N, C, ...)``, where these are.

    At a game's start the first frame is repeated, as in Gymnasium's ``FrameStackObservation``; the replay rebuilds
    its stacks by the same rule.
    """

    def __init__(self, num_envs: int, stack: int, frame_shape: tuple[int, ...], dtype: np.dtype):
        self._stacks: AnyArray = np.zeros((num_envs, stack, *frame_shape), dtype)

    @property
    def observations(self) -> AnyArray:
        """``(N, stack * C, ...)``, a tensor if the newest frames were one; NumPy's are overwritten by the next."""
        count, stack, channels, *rest = self._stacks.shape
        return self._stacks.reshape(count, stack * channels, *rest)

    def push(self, frames: AnyArray, first: np.ndarray) -> None:
        """Add the newest frames ``(N, C, ...)``; where ``first`` ``(N,) bool`` they start an episode.

        Nothing waits for a device that they are on, but for the first that come after NumPy's.
        """
        if isinstance(frames, Tensor):
            self._stacks = _pushed(torch.as_tensor(self._stacks, device=frames.device), frames[:, None], first)
            return
        if isinstance(self._stacks, Tensor):
            self._stacks = self._stacks.cpu().numpy()
        self._stacks[:, :-1] = self._stacks[:, 1:]
        self._stacks[:, -1] = frames
        if first.any():
            self._stacks[first] = frames[first, None]

    def state_dict(self) -> dict[str, Any]:
        """NumPy's, wherever frames are."""
        return {"stacks": torch.as_tensor(self._stacks).cpu().numpy().copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._stacks = np.array(state["stacks"])


def _pushed(stacks: Tensor, newest: Tensor, first: np.ndarray) -> Tensor:
    moved = torch.cat([stacks[:, 1:], newest], dim=1)
    if not first.any():
        return moved
    starts = torch.from_numpy(first).to(newest.device, non_blocking=True)
    return torch.where(starts.view(-1, *[1] * (newest.dim() - 1)), newest, moved)
