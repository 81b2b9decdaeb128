"""Deep expected SARSA: targets of the epsilon-greedy policy in place of the greedy one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dqnspeed.algorithms.base import Learner
from dqnspeed.algorithms.dqn import ScalarQ, ScalarQLearner
from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec


@register("algo", "expected_sarsa")
@dataclass(frozen=True)
class ExpectedSarsa(ScalarQ):
    """Van Seijen et al. (2009), with a network."""

    target_epsilon: float = option("chance of a random action in the policy whose values are learnt", ge=0, le=1)

    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        return ExpectedSarsaLearner(self, run, spec, device)


class ExpectedSarsaLearner(ScalarQLearner):
    def __init__(self, algo: ExpectedSarsa, run: RunConfig, spec: EnvSpec, device: torch.device):
        super().__init__(algo, run, spec, device)
        self._epsilon = algo.target_epsilon

    def target_values(
        self, observations: Tensor, actions: Tensor, rewards: Tensor, next_observations: Tensor, discounts: Tensor
    ) -> Tensor:
        q = self.target(next_observations)
        values = (1 - self._epsilon) * q.max(dim=1).values + self._epsilon * q.mean(dim=1)
        return rewards + discounts * values
