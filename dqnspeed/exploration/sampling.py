"""Actions drawn from a policy."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dqnspeed.exploration.policy import Acted, NetworkPolicy


class Sampler(NetworkPolicy):
    """Actions drawn from the policy of an actor-critic ``network`` (shared with the learner); epsilon means nothing."""

    def __call__(self, observations: np.ndarray, epsilon: float | np.ndarray) -> Acted:
        versions = self._versions(len(observations))
        output = self._compute(observations)
        log_probs = output[:, :-1]
        gumbel = -np.log(self._rng.exponential(size=log_probs.shape))  # the largest sum is a draw from the policy
        actions = (log_probs + gumbel).argmax(axis=1)
        taken = log_probs[np.arange(len(actions)), actions]
        return actions, {"log_probs": taken, "values": output[:, -1], "versions": versions}

    def output(self, observations: Tensor) -> Tensor:
        logits, values = self._network.policy_and_value(observations)
        return torch.column_stack([torch.log_softmax(logits, dim=1), values])
