"""Actions drawn from a policy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from dqnspeed.envs import AnyArray
from dqnspeed.execution.counter_rng import CounterGenerator
from dqnspeed.exploration.policy import Acted, NetworkPolicy


class Sampler(NetworkPolicy):
    """Actions drawn from the policy of an actor-critic ``network`` (shared with the learner); epsilon means nothing."""

    columns = ("log_probs", "values")

    def __call__(self, observations: AnyArray, epsilon: float | np.ndarray) -> Acted:
        versions = self._versions(len(observations))
        output = self._compute(observations)
        log_probs = output[:, :-1]
        gumbel = -np.log(self._rng.exponential(size=log_probs.shape))  # the largest sum is a draw from the policy
        actions = (log_probs + gumbel).argmax(axis=1)
        taken = log_probs[np.arange(len(actions)), actions]
        return actions, {"log_probs": taken, "values": output[:, -1], "versions": versions}

    def values(self, observations: AnyArray) -> np.ndarray:
        found: np.ndarray = self._compute(observations)[:, -1]
        return found

    def choose(
        self, observations: Tensor, epsilon: Tensor, random: CounterGenerator
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        output = self.output(observations)
        log_probs, values = output[:, :-1], output[:, -1]
        uniform = random.uniform(log_probs.numel()).view(log_probs.shape)
        exponential = -torch.log1p(-uniform)  # of what is below 1
        actions = (log_probs - exponential.log()).argmax(dim=1)
        return actions, {"log_probs": log_probs.gather(1, actions[:, None])[:, 0], "values": values}

    def output(self, observations: Tensor) -> Tensor:
        logits, values = self.network.policy_and_value(observations)
        return torch.column_stack([torch.log_softmax(logits, dim=1), values])
