"""How actions are chosen from a network, in the main process and in actors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from dqnspeed.config.schema import ACTOR_CRITIC, ExecutionConfig, RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.precision import gradients_off, precision
from dqnspeed.execution.transfer import ToDevice

Acted = tuple[np.ndarray, dict[str, np.ndarray]]  # actions (N,) int64, and columns of replay.rings.ACTING


class Policy(Protocol):
    """Chooses actions for observations ``(N, stack * C, ...)``."""

    def __call__(self, observations: np.ndarray, epsilon: float) -> Acted:
        """Actions, and what was known when they were chosen."""

    def state_dict(self) -> dict[str, Any]:
        """The state of what is random in it."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    def warm_up(self, observations: np.ndarray) -> None:
        """Do once what acting does, without a trace."""


class NetworkPolicy:
    """What the policies share: a network (the learner's own) and random numbers.

    A call waits for the device once, for the one copy that brings down all that was computed.
    """

    def __init__(self, network: nn.Module, execution: ExecutionConfig, device: torch.device, rng: np.random.Generator):
        self._network, self._execution, self._device, self._rng = network, execution, device, rng
        self._to_device = ToDevice(device, execution.pin_memory)

    def state_dict(self) -> dict[str, Any]:
        return {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._rng.bit_generator.state = state["rng"]

    def warm_up(self, observations: np.ndarray) -> None:
        """Compute once for ``observations``, so that what a first call prepares is no part of the training."""
        self._compute(observations)

    def _compute(self, observations: np.ndarray) -> np.ndarray:
        """What the network tells of ``observations``, ``(N, ...) float32``."""
        with gradients_off(self._execution), precision(self._execution, self._device):
            told = self._output(**self._to_device({"observations": observations}))
        return told.detach().cpu().numpy()

    def _output(self, observations: Tensor) -> Tensor:
        raise NotImplementedError

    def _versions(self, count: int) -> np.ndarray:
        return np.full(count, int(self._network.version))  # type: ignore[arg-type]


class EpsilonGreedy(NetworkPolicy):
    """Random actions with probability epsilon, else the best ones by ``network`` (shared with the learner).

    Args:
        num_actions: of the environment.
        values: tell the largest action value of each observation, which then costs a forward pass for all of them.
    """

    def __init__(
        self,
        network: nn.Module,
        num_actions: int,
        execution: ExecutionConfig,
        device: torch.device,
        rng: np.random.Generator,
        values: bool = False,
    ):
        super().__init__(network, execution, device, rng)
        self._num_actions, self._values = num_actions, values
        # A CPU computes only what is asked for; elsewhere batches of one size cost less than smaller ones.
        self._all = values or device.type != "cpu"

    def __call__(self, observations: np.ndarray, epsilon: float) -> Acted:
        count = len(observations)
        actions = self._rng.integers(self._num_actions, size=count)
        greedy = self._rng.random(count) >= epsilon
        if not greedy.any() and not self._values:
            return actions, {}
        versions = self._versions(count) if self._values else None
        seen = np.ones(count, bool) if self._all else greedy
        q = self._compute(observations[seen])
        actions[greedy] = q.argmax(axis=1)[greedy[seen]]
        return actions, {} if versions is None else {"values": q.max(axis=1), "versions": versions}

    def _output(self, observations: Tensor) -> Tensor:
        q: Tensor = self._network(observations)
        return q


class Sampler(NetworkPolicy):
    """Actions drawn from the policy of an actor-critic ``network`` (shared with the learner); epsilon means nothing."""

    def __call__(self, observations: np.ndarray, epsilon: float) -> Acted:
        versions = self._versions(len(observations))
        told = self._compute(observations)
        log_probs = told[:, :-1]
        gumbel = -np.log(self._rng.exponential(size=log_probs.shape))  # the largest sum is a draw from the policy
        actions = (log_probs + gumbel).argmax(axis=1)
        taken = log_probs[np.arange(len(actions)), actions]
        return actions, {"log_probs": taken, "values": told[:, -1], "versions": versions}

    def _output(self, observations: Tensor) -> Tensor:
        logits, values = self._network.policy_and_value(observations)  # type: ignore[operator]
        return torch.column_stack([torch.log_softmax(logits, dim=1), values])


def make_policy(
    run: RunConfig, spec: EnvSpec, network: nn.Module, device: torch.device, rng: np.random.Generator
) -> Policy:
    """The policy that ``algo`` explores with."""
    if run.algo.name in ACTOR_CRITIC:
        return Sampler(network, run.execution, device, rng)
    return EpsilonGreedy(network, spec.num_actions, run.execution, device, rng, values=run.algo.name == "pqn")


def epsilon_at(step: int, run: RunConfig) -> float:
    """Linear schedule: ``start`` until agent step ``decay_start``, ``final`` after ``decay_steps`` more.

    NaN where actions are drawn from a policy, which has no epsilon.
    """
    if run.algo.name in ACTOR_CRITIC:
        return math.nan
    exploration = run.exploration
    progress = min(1.0, max(0.0, (step - exploration.decay_start) / exploration.decay_steps))
    return exploration.start + progress * (exploration.final - exploration.start)
