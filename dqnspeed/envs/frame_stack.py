"""Stacks of the last frames of each environment, as the network sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnspeed.envs.backends.base import AnyArray


class FrameStack:
    """Stacks ``(N, stack * C, ...)`` of frames ``(N, C, ...)``, on the device of the frames.

    At an episode's start the first frame is repeated, as in Gymnasium's ``FrameStackObservation``. Replay buffers
    rebuild stacks by the same rule.
    """

    def __init__(self, num_envs: int, stack: int, frame_shape: tuple[int, ...], dtype: np.dtype):
        self._stacks: AnyArray = np.zeros((num_envs, stack, *frame_shape), dtype)

    @property
    def observations(self) -> AnyArray:
        """Stacks ``(N, stack * C, ...)``, a tensor if the newest frames were one.

        :meth:`push` overwrites a NumPy array.
        """
        count, stack, channels, *rest = self._stacks.shape
        return self._stacks.reshape(count, stack * channels, *rest)

    def push(self, frames: AnyArray, first: np.ndarray) -> None:
        """Add the newest frames ``(N, C, ...)``; where ``first`` ``(N,) bool`` is true, a frame starts an episode.

        The host waits for the device of a tensor only if the frames before were NumPy's.
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
        """Stacks as a NumPy array, whatever the device."""
        return {"stacks": torch.as_tensor(self._stacks).cpu().numpy().copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._stacks = np.array(state["stacks"])


def _pushed(stacks: Tensor, newest: Tensor, first: np.ndarray) -> Tensor:
    moved = torch.cat([stacks[:, 1:], newest], dim=1)
    if not first.any():
        return moved
    starts = torch.from_numpy(first).to(newest.device, non_blocking=True)
    return torch.where(starts.view(-1, *[1] * (newest.dim() - 1)), newest, moved)
