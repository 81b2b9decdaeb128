"""Actions drawn from the policy of an actor-critic."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from dqnspeed.envs import AnyArray
from dqnspeed.execution.arrays import Array
from dqnspeed.exploration.policy import NetworkPolicy
from dqnspeed.exploration.random_numbers import RandomNumbers, draw


class CategoricalPolicy(NetworkPolicy):
    """Actions drawn from the policy of an actor-critic network; epsilon has no effect."""

    columns = ("log_probs", "values")

    def output(self, observations: Tensor) -> Tensor:
        """Log probabilities of the actions, and the state value in the last column."""
        logits, values = self.network.policy_and_value(observations)
        return torch.column_stack([torch.log_softmax(logits, dim=1), values])

    def numpy_output(self, *computed: np.ndarray) -> np.ndarray:
        logits, values = computed
        logits = logits - logits.max(axis=1, keepdims=True)
        return np.column_stack([logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)), values])

    def choose(self, output: Array, epsilon: Array | float, random: RandomNumbers) -> tuple[Array, Mapping[str, Array]]:
        log_probs, values = output[:, :-1], output[:, -1]
        actions = draw(log_probs, random)
        return actions, {"log_probs": log_probs[random.arrays.arange(len(output)), actions], "values": values}

    def values(self, observations: AnyArray) -> np.ndarray:
        found: np.ndarray = self._compute(observations)[:, -1]
        return found
