"""A2C: synchronous advantage actor-critic (Mnih et al. 2016), as in OpenAI Baselines and Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dqnspeed.algorithms.actor_critic import ActorCritic, PolicyLearner, entropy_of
from dqnspeed.algorithms.base import Learner
from dqnspeed.algorithms.data_sources import OnceFromRollouts
from dqnspeed.algorithms.learner import Loss
from dqnspeed.buffers import RolloutBatch
from dqnspeed.config.options import ConfigError
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.precision import precision


@register("algo", "a2c")
@dataclass(frozen=True)
class A2C(ActorCritic, OnceFromRollouts):
    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        return A2CLearner(self, run, spec, device)

    def check(self, run: RunConfig) -> None:
        if run.parallelism.processes:
            raise ConfigError(
                f"parallelism={run.parallelism.name}: algo={self.name} learns in one process; use parallelism=serial, "
                f"or algo=a3c."
            )
        rollout = run.total_envs * self.num_steps
        if self.batch_size != rollout:
            raise ConfigError(
                f"algo.batch_size={self.batch_size}: algo={self.name} makes one update of a whole rollout, "
                f"num_envs times algo.num_steps. Leave it out, or set it to {rollout}."
            )
        super().check(run)


class ActorCriticLearner(PolicyLearner):
    """Loss of A2C and A3C: the advantage is the bootstrapped return minus the value of the state."""

    STATS = ("train/loss", "train/policy_loss", "train/value_loss", "train/entropy")

    def actor_critic_loss(
        self, observations: Tensor, actions: Tensor, returns: Tensor, weights: Tensor, ent_coef: Tensor
    ) -> Loss:
        """Loss on transitions with ``weights``, whose sum is 1."""
        with precision(self._execution, self.device):
            logits, values = self.network.policy_and_value(observations)
        log_probs = torch.log_softmax(logits, dim=1)
        taken = log_probs.gather(1, actions[:, None])[:, 0]
        policy_loss = -((returns - values.detach()) * taken) @ weights
        value_loss = (values - returns) ** 2 @ weights
        entropy = entropy_of(log_probs) @ weights
        loss = policy_loss + self._vf_coef * value_loss - self._bonus(entropy, ent_coef)
        return Loss((loss, policy_loss, value_loss, entropy))


class A2CLearner(ActorCriticLearner):
    """Learner from the returns of rollouts: n-step returns for the first of n steps, 1-step returns for the last."""

    def loss_inputs(self, batch: RolloutBatch) -> Mapping[str, np.ndarray | Tensor]:
        names = ("observations", "actions", "returns", "weights")
        return {**{name: getattr(batch, name) for name in names}, "ent_coef": self._ent_coef()}

    def loss(self, observations: Tensor, actions: Tensor, returns: Tensor, weights: Tensor, ent_coef: Tensor) -> Loss:
        return self.actor_critic_loss(observations, actions, returns, weights, ent_coef)
