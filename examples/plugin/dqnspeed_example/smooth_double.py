"""Double DQN (van Hasselt et al. 2016) with a loss of its own."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dqnspeed.algorithms.base import Learner
from dqnspeed.algorithms.dqn import ScalarQ, ScalarQLearner
from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec


@register("algo", "smooth_double")
@dataclass(frozen=True)
class SmoothDouble(ScalarQ):
    loss: str = option("loss on the TD error", choices=("pseudo_huber",), default="pseudo_huber")

    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        return SmoothDoubleLearner(self, run, spec, device)


class SmoothDoubleLearner(ScalarQLearner):
    def criterion(self, values: Tensor, targets: Tensor) -> Tensor:
        return (1 + (values - targets).square()).sqrt() - 1  # of each transition

    def target_values(
        self, observations: Tensor, actions: Tensor, rewards: Tensor, next_observations: Tensor, discounts: Tensor
    ) -> Tensor:
        best = self.network(next_observations).argmax(dim=1, keepdim=True)  # the online network chooses
        return rewards + discounts * self.target(next_observations).gather(1, best)[:, 0]
