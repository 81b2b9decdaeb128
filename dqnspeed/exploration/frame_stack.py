"""Acting on frames: a policy with the stacks that it looks at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from dqnspeed.envs import AnyArray, EnvSpec, FrameStack
from dqnspeed.execution.transfer import ToDevice
from dqnspeed.exploration.policy import Acted, Policy


class FramePolicy(Protocol):
    """Chooses actions for N environments from the frames that it was shown.

    Attributes:
        how: ``graph``, or ``eager``: one operation after another.
        chosen: ``(N,)``, the actions of the last call where a device is still choosing them; ``None``: they are known
            when it returns. The next call writes into it.
        seen: ``(N, C, ...)``, the frames that it acted on in the last call, where a device has them; ``None``: as
            shown. The next call writes into it.
    """

    how: str

    @property
    def chosen(self) -> Tensor | None: ...

    @property
    def seen(self) -> Tensor | None: ...

    def push(self, frames: AnyArray, first: np.ndarray) -> None:
        """Show the newest frames ``(N, C, ...)``; where ``first`` ``(N,) bool`` they start an episode. An action is
        chosen before the next are shown, unless they all start one."""

    def __call__(self, epsilon: float | np.ndarray) -> Callable[[], Acted]:
        """Choose actions; what is returned waits for them, once, before the next frames are shown, and gives them and
        what was known when they were chosen. ``epsilon``: of all environments, or ``(N,)``, of each."""

    def values(self) -> np.ndarray:
        """Values ``(N,)`` of what it was shown last, without choosing."""

    def warm_up(self) -> None:
        """Do once what acting does, without a trace."""

    def state_dict(self) -> dict[str, Any]:
        """The stacks with the newest frames, and the state of what is random."""

    def load_state_dict(self, state: Mapping[str, Any], stacks: bool = True) -> None:
        """Restore it; without ``stacks`` only what is random."""


class StackedPolicy:
    """Stacks where frames are, one operation after another.

    Args:
        to_device: where to stack them instead: each frame goes there once, and not again with each stack.
    """

    how = "eager"
    chosen = None
    seen: Tensor | None = None

    def __init__(self, policy: Policy, spec: EnvSpec, num_envs: int, to_device: ToDevice | None = None):
        self._policy, self._to_device = policy, to_device
        self._stack = FrameStack(num_envs, spec.stack, spec.frame_shape, spec.frame_dtype)

    def push(self, frames: AnyArray, first: np.ndarray) -> None:
        if self._to_device is not None:
            frames = self.seen = self._to_device({"frames": frames})["frames"]
        self._stack.push(frames, first)

    def __call__(self, epsilon: float | np.ndarray) -> Callable[[], Acted]:
        acted = self._policy(self._stack.observations, epsilon)
        return lambda: acted

    def values(self) -> np.ndarray:
        return self._policy.values(self._stack.observations)

    def warm_up(self) -> None:
        self._policy.warm_up(self._stack.observations)

    def state_dict(self) -> dict[str, Any]:
        return {"stack": self._stack.state_dict(), "policy": self._policy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any], stacks: bool = True) -> None:
        if stacks:
            self._stack.load_state_dict(state["stack"])
            self.seen = None
        if "rng" in state["policy"]:  # else it was saved by one whose numbers are drawn on a device
            self._policy.load_state_dict(state["policy"])
