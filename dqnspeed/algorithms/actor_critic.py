"""Advantage actor-critic (Mnih et al. 2016) on n-step pieces, and PPO (Schulman et al. 2017) on rollouts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dqnspeed.algorithms.gradient import OnPolicyLearner
from dqnspeed.config.options import given
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.optimizers import annealed
from dqnspeed.execution.precision import gradients_off, precision
from dqnspeed.memory import Batch, RolloutBatch


class PolicyLearner(OnPolicyLearner):
    """A learner of a policy and a value, with an entropy bonus that may fall as the learning rate does."""

    def __init__(self, run: RunConfig, spec: EnvSpec, device: torch.device):
        super().__init__(run, spec, device)
        self._entropy, self._entropy_final = given(run.algo.entropy), given(run.algo.entropy_final)
        self._value_coef = given(run.algo.value_coef)

    def _entropy_coef(self) -> np.ndarray:
        """Weight of the bonus now, as an array: a number that changes would have the loss compiled anew."""
        return np.array(annealed(self.updates, self._entropy, self._entropy_final, self._decay_updates), np.float32)


class ActorCritic(PolicyLearner):
    """A2C and A3C: pieces of n steps, whose advantage is what they brought less the value of their first state.

    A batch holds pieces of one process (``a2c``) or of several (``a3c``); the arithmetic is the same.
    """

    STATS = ("train/loss", "train/policy_loss", "train/value_loss", "train/entropy")

    def _arrays(self, batch: Batch) -> Mapping[str, np.ndarray | Tensor]:
        return {**batch.arrays(), "entropy_coef": self._entropy_coef()}

    def _loss(
        self,
        observations: Tensor,
        actions: Tensor,
        rewards: Tensor,
        next_observations: Tensor,
        discounts: Tensor,
        entropy_coef: Tensor,
    ) -> tuple[Tensor, ...]:
        with precision(self._execution, self.device):
            logits, values = self.network.policy_and_value(observations)  # type: ignore[operator]
            with gradients_off(self._execution):
                next_values = self.network.policy_and_value(next_observations)[1]  # type: ignore[operator]
        targets = rewards + discounts * next_values.detach()
        log_probs = torch.log_softmax(logits, dim=1)
        taken = log_probs.gather(1, actions[:, None])[:, 0]
        policy_loss = -((targets - values.detach()) * taken).mean()
        value_loss = F.mse_loss(values, targets)
        entropy = entropy_of(log_probs)
        loss = policy_loss + self._value_coef * value_loss - entropy_coef * entropy
        return loss, policy_loss, value_loss, entropy


class PPO(PolicyLearner):
    """Proximal policy optimisation with the clipped objective (equation 7), as its usual implementations have it.

    Advantages are normalised in each batch, the value function may be clipped as the policy is, and the gradient's
    norm is (Huang et al. 2022, "The 37 implementation details of proximal policy optimization", details 1 to 11).
    """

    STATS = (
        "train/loss", "train/policy_loss", "train/value_loss", "train/entropy", "train/approx_kl",
        "train/clip_fraction",
    )  # fmt: skip

    def __init__(self, run: RunConfig, spec: EnvSpec, device: torch.device):
        super().__init__(run, spec, device)
        self._clip, self._clip_value = given(run.algo.clip), given(run.algo.clip_value)
        self._normalize = given(run.algo.normalize_advantage)

    def _arrays(self, batch: RolloutBatch) -> Mapping[str, np.ndarray | Tensor]:
        return {
            "observations": batch.observations,
            "actions": batch.actions,
            "old_log_probs": batch.log_probs,
            "old_values": batch.values,
            "returns": batch.returns,
            "entropy_coef": self._entropy_coef(),
        }

    def _loss(
        self,
        observations: Tensor,
        actions: Tensor,
        old_log_probs: Tensor,
        old_values: Tensor,
        returns: Tensor,
        entropy_coef: Tensor,
    ) -> tuple[Tensor, ...]:
        with precision(self._execution, self.device):
            logits, values = self.network.policy_and_value(observations)  # type: ignore[operator]
        advantages = returns - old_values
        if self._normalize:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        log_probs = torch.log_softmax(logits, dim=1)
        log_ratio = log_probs.gather(1, actions[:, None])[:, 0] - old_log_probs
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - self._clip, 1 + self._clip)
        policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
        errors = (values - returns) ** 2
        if self._clip_value:
            near = old_values + (values - old_values).clamp(-self._clip, self._clip)
            errors = torch.max(errors, (near - returns) ** 2)
        value_loss = errors.mean()
        entropy = entropy_of(log_probs)
        loss = policy_loss + self._value_coef * value_loss / 2 - entropy_coef * entropy
        approx_kl = (ratio - 1 - log_ratio).mean()  # never negative (Schulman, "Approximating KL divergence")
        clip_fraction = ((ratio - 1).abs() > self._clip).float().mean()
        return loss, policy_loss, value_loss, entropy, approx_kl, clip_fraction


def entropy_of(log_probs: Tensor) -> Tensor:
    """Mean entropy, nats, of policies given as ``(B, num_actions)`` log-probabilities."""
    return -(log_probs.exp() * log_probs).sum(dim=1).mean()
