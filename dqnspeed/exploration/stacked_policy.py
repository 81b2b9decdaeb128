"""Acting on single frames: a policy together with the frame stacks that it observes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from dqnspeed.envs import AnyArray, EnvSpec, FrameStack
from dqnspeed.execution.transfer import ToDevice
from dqnspeed.exploration.policy import Acted, Policy


class StackedPolicy:
    """Stacks frames and chooses actions one operation after another.

    :class:`~dqnspeed.exploration.cuda_graph.GraphedPolicy` has the same interface.

    Args:
        to_device: moves each frame to a device before it is stacked there, so that a frame crosses once.

    Attributes:
        how: ``graph``, or ``eager``: one operation after another.
        device_actions: actions ``(N,)`` of the last call, while a device may still be choosing them; the next call
            overwrites them. ``None`` if actions are known when the call returns.
        device_frames: frames ``(N, C, ...)`` of the last call on the device that chose; the next call overwrites them.
            ``None`` if frames stay where they were given.
    """

    how = "eager"
    device_actions: Tensor | None = None
    device_frames: Tensor | None = None

    def __init__(self, policy: Policy, spec: EnvSpec, num_envs: int, to_device: ToDevice | None = None):
        self._policy, self._to_device = policy, to_device
        self._stack = FrameStack(num_envs, spec.stack, spec.frame_shape, spec.frame_dtype)

    def push(self, frames: AnyArray, first: np.ndarray) -> None:
        """Add the newest frames ``(N, C, ...)`` to the stacks; call it once before each choice of actions.

        Args:
            first: ``(N,) bool``, frames that start an episode.
        """
        if self._to_device is not None:
            frames = self.device_frames = self._to_device({"frames": frames})["frames"]
        self._stack.push(frames, first)

    def __call__(self, epsilon: float | np.ndarray) -> Callable[[], Acted]:
        """Start to choose actions; returns a function that waits for them and returns them.

        Call that function once, before the next :meth:`push`.

        Args:
            epsilon: chance of a random action, for all environments or ``(N,)`` for each.
        """
        acted = self._policy(self._stack.observations, epsilon)
        return lambda: acted

    def values(self) -> np.ndarray:
        """Values ``(N,)`` of the newest stacks."""
        return self._policy.values(self._stack.observations)

    def warm_up(self) -> None:
        """Act once without side effects."""
        self._policy.warm_up(self._stack.observations)

    def state_dict(self) -> dict[str, Any]:
        return {"stack": self._stack.state_dict(), "policy": self._policy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any], stacks: bool = True) -> None:
        """Restore :meth:`state_dict`; without ``stacks`` only the random numbers."""
        if stacks:
            self._stack.load_state_dict(state["stack"])
            self.device_frames = None
        if "rng" in state["policy"]:  # a graphed policy saves other random numbers
            self._policy.load_state_dict(state["policy"])
