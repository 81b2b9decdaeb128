"""Soft values, and a reward for actions that the policy is sure of (Vieillard et al. 2020).

The policy is that of the action values at a temperature: pi = softmax(q / temperature). What is computed from
q / temperature takes its largest entry away first, as appendix B asks: at a temperature of 0.03 an exponential of it
would overflow.
"""

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


def soft_value(q: Tensor, temperature: float) -> Tensor:
    """``sum_a pi(a) (q(a) - temperature * log pi(a))`` of action values ``(B, A)``, ``(B,)`` (equation 2)."""
    return temperature * torch.logsumexp(q / temperature, dim=1)


def munchausen_reward(
    rewards: Tensor, q: Tensor, actions: Tensor, alpha: float, temperature: float, clip: float
) -> Tensor:
    """``reward + alpha * [temperature * log pi(action)]``, ``(B,)``, the bracket between ``clip`` and 0 (equation 2).

    Args:
        q: ``(B, A)`` action values of the observations that ``actions`` ``(B,) int64`` were chosen for.
        clip: the least that the bracket may be, l0 in the paper (-1 there), at most 0.
    """
    log_policy = torch.log_softmax(q / temperature, dim=1).gather(1, actions[:, None])[:, 0]
    return rewards + alpha * (temperature * log_policy).clamp(clip, 0)


@register("algo", "munchausen")
@dataclass(frozen=True)
class Munchausen(ScalarQ):
    """M-DQN. Of a transition of several steps, the first action alone is rewarded."""

    temperature: float = option("temperature of the policy that the action values stand for", gt=0)
    alpha: float = option("share of the action's log-probability in the reward", ge=0, le=1)
    log_prob_min: float = option("the least that temperature * log-probability counts", le=0)

    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        return MunchausenLearner(self, run, spec, device)


class MunchausenLearner(ScalarQLearner):
    """The target is the reward, more of it for likely actions, and the soft value of what follows."""

    JOINS = True

    def __init__(self, algo: Munchausen, run: RunConfig, spec: EnvSpec, device: torch.device):
        super().__init__(algo, run, spec, device)
        self._alpha, self._temperature, self._log_prob_min = algo.alpha, algo.temperature, algo.log_prob_min

    def target_values(
        self, observations: Tensor, actions: Tensor, rewards: Tensor, next_observations: Tensor, discounts: Tensor
    ) -> Tensor:
        before, after = self.target(observations), self.target(next_observations)
        rewards = munchausen_reward(rewards, before, actions, self._alpha, self._temperature, self._log_prob_min)
        return rewards + discounts * soft_value(after, self._temperature)
