"""Interface of policies, and the base class of policies that act by a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from dqnspeed.config.schema import ExecutionConfig
from dqnspeed.envs import AnyArray
from dqnspeed.execution.arrays import Array, host
from dqnspeed.execution.compiling import compiled_for_cpu
from dqnspeed.execution.precision import gradients_off, precision
from dqnspeed.execution.transfer import ToDevice
from dqnspeed.exploration.random_numbers import HostRandom, RandomNumbers
from dqnspeed.networks.base import Network
from dqnspeed.system import seeding

Acted = tuple[np.ndarray, dict[str, np.ndarray]]  # actions (N,) int64, and columns of ring_buffer.POLICY_COLUMNS


class Policy(Protocol):
    """Chooses actions for observations ``(N, stack * C, ...)``: an array, or a tensor on any device."""

    def __call__(self, observations: AnyArray, epsilon: float | np.ndarray) -> Acted:
        """Choose actions; returns them with columns about the policy that chose them.

        Args:
            epsilon: chance of a random action, for all environments or ``(N,)`` for each.
        """

    def values(self, observations: AnyArray) -> np.ndarray:
        """Values ``(N,) float32`` of observations, if the policy's columns include values."""

    def state_dict(self) -> dict[str, Any]:
        """State of the random numbers."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    def warm_up(self, observations: AnyArray) -> None:
        """Act once without side effects, so that the first action of the training is not slower."""


class NetworkPolicy:
    """Base class of policies that choose actions by the output of the learner's network.

    A subclass defines :meth:`output` and :meth:`choose`. Both run one operation after another here, and inside a CUDA
    graph in :class:`~dqnspeed.exploration.cuda_graph.GraphedPolicy`.

    Attributes:
        columns: names, of ``buffers.ring_buffer.POLICY_COLUMNS``, that :meth:`choose` returns beside the actions.
    """

    columns: tuple[str, ...] = ()

    def __init__(self, network: Network, execution: ExecutionConfig, device: torch.device, rng: np.random.Generator):
        self.network, self.execution, self._device = network, execution, device
        self._rng, self._random = rng, HostRandom(rng)
        self._to_device = ToDevice(device, execution.pin_memory)
        by_numpy = execution.numpy_acting and execution.no_grad and execution.precision == "fp32"
        self._in_numpy = network.in_numpy() if by_numpy and device.type == "cpu" else None
        compiles = execution.compile and device.type == "cpu" and self._in_numpy is None
        self._compiled = compiled_for_cpu(self.output) if compiles else None

    def output(self, observations: Tensor) -> Tensor:
        """Network output ``(N, K)`` that actions are chosen by."""
        raise NotImplementedError

    def numpy_output(self, *computed: np.ndarray) -> np.ndarray:
        """:meth:`output`, from what :meth:`Network.in_numpy` has computed."""
        return computed[0]

    def choose(self, output: Array, epsilon: Array | float, random: RandomNumbers) -> tuple[Array, Mapping[str, Array]]:
        """Choose actions ``(N,)`` by ``output``; returns them with ``columns``.

        ``output`` is a NumPy array on the host, or a tensor on a device. Code for both uses ``random.arrays``.
        """
        raise NotImplementedError

    def __call__(self, observations: AnyArray, epsilon: float | np.ndarray) -> Acted:
        version = int(self.network.version)
        actions, columns = self.choose(self._compute(observations), epsilon, self._random)
        known = {**columns, "versions": np.full(len(actions), version)} if self.columns else {}
        return cast("Acted", (actions, known))

    def values(self, observations: AnyArray) -> np.ndarray:
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        return {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._rng.bit_generator.state = state["rng"]

    def warm_up(self, observations: AnyArray) -> None:
        with seeding.preserve():  # a noisy network draws random numbers
            self._compute(observations)

    def _compute(self, observations: AnyArray) -> np.ndarray:
        """:meth:`output` of ``observations``, on the host; waits for the device once."""
        if self._in_numpy is not None:
            return self.numpy_output(*self._in_numpy(host(observations)))
        with gradients_off(self.execution), precision(self.execution, self._device):
            output = (self._compiled or self.output)(**self._to_device({"observations": observations}))
        return output.detach().cpu().numpy()
