"""Policies that act by action values: by any function of them, or epsilon-greedily."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from dqnspeed.config.schema import ExecutionConfig
from dqnspeed.envs import AnyArray
from dqnspeed.execution.arrays import Array
from dqnspeed.exploration.policy import Acted, NetworkPolicy
from dqnspeed.exploration.random_numbers import RandomNumbers
from dqnspeed.networks.base import Network

# Chooses actions (N,) by action values (N, num_actions) and epsilon, on the host or on a device.
ChooseByValues = Callable[[Array, "Array | float", RandomNumbers], Array]


def epsilon_greedy(values: Array, epsilon: Array | float, random: RandomNumbers) -> Array:
    """Choose a random action with probability epsilon, else the best one by ``values`` ``(N, num_actions)``."""
    count, num_actions = values.shape
    drawn = random.below(num_actions, count)
    chosen: Array = random.arrays.xp.where(random.uniform(count) < epsilon, drawn, values.argmax(1))
    return chosen


class QPolicy(NetworkPolicy):
    """Chooses actions by their values.

    Args:
        num_actions: number of actions of the environment.
        values: also return the largest action value of each observation.
        choose: function of the action values.
    """

    def __init__(
        self,
        network: Network,
        num_actions: int,
        execution: ExecutionConfig,
        device: torch.device,
        rng: np.random.Generator,
        values: bool = False,
        choose: ChooseByValues = epsilon_greedy,
    ):
        super().__init__(network, execution, device, rng)
        self._choose, self.num_actions = choose, num_actions
        self.columns = ("values",) if values else ()

    def output(self, observations: Tensor) -> Tensor:
        q: Tensor = self.network(observations)
        return q

    def choose(self, output: Array, epsilon: Array | float, random: RandomNumbers) -> tuple[Array, Mapping[str, Array]]:
        actions = self._choose(output, epsilon, random)
        if not self.columns:
            return actions, {}
        return actions, {"values": output[random.arrays.arange(len(output)), output.argmax(1)]}

    def values(self, observations: AnyArray) -> np.ndarray:
        found: np.ndarray = self._compute(observations).max(axis=1)
        return found


class EpsilonGreedy(QPolicy):
    """Epsilon-greedy actions. On a CPU the network, unless compiled, sees only those whose action is not random."""

    def __call__(self, observations: AnyArray, epsilon: float | np.ndarray) -> Acted:
        if self.columns:
            return super().__call__(observations, epsilon)
        count = len(observations)
        actions = self._random.below(self.num_actions, count)
        greedy = self._random.uniform(count) >= epsilon
        if greedy.any():
            # On other devices, and compiled, batches of one size cost less than smaller batches of varying sizes.
            varies = self._device.type == "cpu" and self._compiled is None
            seen = greedy if varies else np.ones(count, bool)
            best = self._compute(observations if seen.all() else observations[seen]).argmax(axis=1)
            actions[greedy] = best[greedy[seen]]
        return actions, {}
