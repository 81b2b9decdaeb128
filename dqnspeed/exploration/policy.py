"""What a policy is: how actions are chosen from a network, in the main process and in actors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dqnspeed.config.schema import ExecutionConfig
from dqnspeed.envs import AnyArray
from dqnspeed.execution.counter_rng import CounterGenerator
from dqnspeed.execution.precision import gradients_off, precision
from dqnspeed.execution.transfer import ToDevice
from dqnspeed.networks.base import Network
from dqnspeed.system import seeding

Acted = tuple[np.ndarray, dict[str, np.ndarray]]  # actions (N,) int64, and columns of buffers.ring_buffer.ACTING


class Policy(Protocol):
    """Chooses actions for observations ``(N, stack * C, ...)``, NumPy's or a tensor on any device."""

    def __call__(self, observations: AnyArray, epsilon: float | np.ndarray) -> Acted:
        """Actions, and what was known when they were chosen; ``epsilon``: of all environments, or ``(N,)``, of each."""

    def values(self, observations: AnyArray) -> np.ndarray:
        """Values ``(N,) float32`` of observations, by the same network; of policies whose :data:`Acted` has them."""

    def state_dict(self) -> dict[str, Any]:
        """The state of what is random in it."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    def warm_up(self, observations: AnyArray) -> None:
        """Do once what acting does, without a trace."""


class NetworkPolicy:
    """What the policies share: a network (the learner's own) and random numbers.

    A call waits for the device once, for the one copy that brings down all that was computed. Observations that are
    there already are computed with as they are.

    Attributes:
        columns: what :meth:`choose` knows beside the actions, by the names of ``buffers.ring_buffer.ACTING``.
    """

    columns: tuple[str, ...] = ()

    def __init__(self, network: Network, execution: ExecutionConfig, device: torch.device, rng: np.random.Generator):
        self.network, self.execution, self._device, self._rng = network, execution, device, rng
        self._to_device = ToDevice(device, execution.pin_memory)

    def state_dict(self) -> dict[str, Any]:
        return {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._rng.bit_generator.state = state["rng"]

    def warm_up(self, observations: AnyArray) -> None:
        """Compute once for ``observations``, so that what a first call prepares is no part of the training."""
        with seeding.preserve():  # noise on weights is drawn
            self._compute(observations)

    def values(self, observations: AnyArray) -> np.ndarray:
        """Values ``(N,) float32`` of observations, without choosing actions."""
        raise NotImplementedError

    def choose(
        self, observations: Tensor, epsilon: Tensor, random: CounterGenerator
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Actions ``(N,)`` and ``columns``, by operations on the device alone; ``epsilon`` of each, ``(N,)``."""
        raise NotImplementedError

    def _compute(self, observations: AnyArray) -> np.ndarray:
        """What the network says of ``observations``, ``(N, ...) float32``."""
        with gradients_off(self.execution), precision(self.execution, self._device):
            output = self.output(**self._to_device({"observations": observations}))
        return output.detach().cpu().numpy()

    def output(self, observations: Tensor) -> Tensor:
        raise NotImplementedError

    def _versions(self, count: int) -> np.ndarray:
        return np.full(count, int(self.network.version))
