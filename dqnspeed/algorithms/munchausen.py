"""Munchausen DQN: soft values, and a bonus for actions that the policy is sure of (Vieillard et al. 2020).

The policy of action values q is softmax(q / temperature). As appendix B asks, logarithms are computed without
exponentials of q / temperature, which would overflow at a temperature of 0.03.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dqnspeed.algorithms.dqn import CRITERIA, DeepQ
from dqnspeed.buffers import Transitions
from dqnspeed.config.options import option
from dqnspeed.config.registry import register


def soft_value(q: Tensor, temperature: float) -> Tensor:
    """``sum_a pi(a) (q(a) - temperature * log pi(a))`` of action values ``(B, A)``, ``(B,)`` (equation 2)."""
    return temperature * torch.logsumexp(q / temperature, dim=1)


def munchausen_reward(
    rewards: Tensor, q: Tensor, actions: Tensor, alpha: float, temperature: float, clip: float
) -> Tensor:
    """``reward + alpha * [temperature * log pi(action)]``, ``(B,)``, the bracket between ``clip`` and 0 (equation 2).

    Args:
        q: ``(B, A)`` action values of the observations that ``actions`` ``(B,) int64`` were chosen for.
        clip: lower bound of the bracket, l0 in the paper (-1 there), at most 0.
    """
    log_policy = torch.log_softmax(q / temperature, dim=1).gather(1, actions[:, None])[:, 0]
    return rewards + alpha * (temperature * log_policy).clamp(clip, 0)


@register("algo", "munchausen")
@dataclass(frozen=True)
class Munchausen(DeepQ):
    """M-DQN (equation 1). In a transition of several steps only the first action is rewarded."""

    compiles_gradients = True

    loss: str = option("loss on the TD error", choices=tuple(CRITERIA))
    temperature: float = option("temperature of the policy that the action values stand for", gt=0)
    alpha: float = option("share of the action's log-probability in the reward", ge=0, le=1)
    log_prob_min: float = option("the least that temperature * log-probability counts", le=0)

    def targets(self, network: Any, target: Any, batch: Transitions) -> Tensor:
        q, next_q = target(batch.observations), target(batch.next_observations)
        rewards = munchausen_reward(batch.rewards, q, batch.actions, self.alpha, self.temperature, self.log_prob_min)
        return rewards + batch.discounts * soft_value(next_q, self.temperature)

    def criterion(self, values: Tensor, targets: Tensor) -> Tensor:
        return CRITERIA[self.loss](values, targets, reduction="none")
