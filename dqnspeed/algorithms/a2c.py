"""A2C: synchronous advantage actor-critic (Mnih et al. 2016), as in OpenAI Baselines and Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dqnspeed.algorithms import actor_critic
from dqnspeed.algorithms.actor_critic import ActorCritic, ActorCriticLoss
from dqnspeed.algorithms.base import Learner
from dqnspeed.algorithms.data_sources import FromRollouts
from dqnspeed.algorithms.learner import GradientLearner
from dqnspeed.buffers import RolloutBatch
from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec


@register("algo", "a2c")
@dataclass(frozen=True)
class A2C(ActorCritic, FromRollouts):
    gae_lambda: float = option("lambda of generalised advantage estimation, 1: n-step returns", ge=0, le=1)

    @property
    def return_lambda(self) -> float:
        return self.gae_lambda

    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        return A2CLearner(run, spec, device)

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


class A2CLearner(GradientLearner):
    """One step for each rollout, on n-step returns for the first of n steps and 1-step returns for the last."""

    METRICS = (*ActorCriticLoss._fields, "policy_lag")

    def update(self, batch: RolloutBatch) -> None:
        """Take a gradient step on a whole rollout."""
        loss: ActorCriticLoss = self.backward(batch)
        self.optimizer_step(*loss, batch.lags @ batch.weights)

    def loss_inputs(self, batch: RolloutBatch) -> Mapping[str, Tensor]:
        names = ("observations", "actions", "returns", "weights")
        return {**{name: getattr(batch, name) for name in names}, "ent_coef": actor_critic.ent_coef(self)}

    def loss(self, **inputs: Tensor) -> ActorCriticLoss:
        return actor_critic.loss(self, **inputs)
