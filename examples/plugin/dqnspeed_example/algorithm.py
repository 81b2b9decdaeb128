"""Deep expected SARSA: targets of the epsilon-greedy policy in place of the greedy one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dqnspeed.algorithms.dqn import DeepQ
from dqnspeed.buffers import Transitions
from dqnspeed.config.options import option
from dqnspeed.config.registry import register


@register("algo", "expected_sarsa")
@dataclass(frozen=True)
class ExpectedSarsa(DeepQ):
    """Van Seijen et al. (2009), with a network."""

    target_epsilon: float = option("chance of a random action in the policy whose values are learnt", ge=0, le=1)

    def targets(self, network: Any, target: Any, batch: Transitions) -> Tensor:
        q = target(batch.next_observations)
        values = (1 - self.target_epsilon) * q.max(dim=1).values + self.target_epsilon * q.mean(dim=1)
        return batch.rewards + batch.discounts * values
