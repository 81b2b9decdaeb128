"""Epsilon-greedy actions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from dqnspeed.config.schema import ExecutionConfig
from dqnspeed.envs import AnyArray
from dqnspeed.execution.counter_rng import CounterGenerator
from dqnspeed.exploration.policy import Acted, NetworkPolicy
from dqnspeed.networks.base import Network


class EpsilonGreedy(NetworkPolicy):
    """Random actions with probability epsilon, else the best ones by ``network`` (shared with the learner).

    Args:
        num_actions: of the environment.
        values: give the largest action value of each observation too, which then costs a forward pass for all of them.
    """

    def __init__(
        self,
        network: Network,
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

    def __call__(self, observations: AnyArray, epsilon: float | np.ndarray) -> Acted:
        count = len(observations)
        actions = self._rng.integers(self._num_actions, size=count)
        greedy = self._rng.random(count) >= epsilon
        if not greedy.any() and not self._values:
            return actions, {}
        versions = self._versions(count) if self._values else None
        seen = np.ones(count, bool) if self._all else greedy
        q = self._compute(observations if seen.all() else observations[seen])
        actions[greedy] = q.argmax(axis=1)[greedy[seen]]
        return actions, {} if versions is None else {"values": q.max(axis=1), "versions": versions}

    def values(self, observations: AnyArray) -> np.ndarray:
        found: np.ndarray = self._compute(observations).max(axis=1)
        return found

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("values",) if self._values else ()

    def choose(
        self, observations: Tensor, epsilon: Tensor, random: CounterGenerator
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        best = self.output(observations).max(dim=1)
        count = len(observations)
        drawn = random.below(self._num_actions, count)
        actions = torch.where(random.uniform(count) < epsilon, drawn, best.indices)
        return actions, {"values": best.values}

    def output(self, observations: Tensor) -> Tensor:
        q: Tensor = self.network(observations)
        return q
