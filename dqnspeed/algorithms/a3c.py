"""A3C with data parallelism (chapter 11): processes act, and send their experience to one learner.

A3C is slightly off-policy: transitions wait in a queue while the weights change, without a correction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dqnspeed.algorithms import actor_critic
from dqnspeed.algorithms.actor_critic import ActorCritic, ActorCriticLoss
from dqnspeed.algorithms.base import Learner
from dqnspeed.algorithms.data_sources import FromStream
from dqnspeed.algorithms.learner import GradientLearner
from dqnspeed.buffers import Batch, Transitions
from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.precision import gradients_off, precision


@register("algo", "a3c")
@dataclass(frozen=True)
class A3C(ActorCritic, FromStream):
    n_step: int = option("agent steps summed before bootstrapping", ge=1, le=1000)  # type: ignore[misc]
    queue_batches: int = option("batches that may wait for the learner", ge=1)  # type: ignore[misc]

    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        return A3CLearner(run, spec, device)

    def check(self, run: RunConfig) -> None:
        super().check(run)
        if not run.parallelism.processes:
            raise ConfigError(
                f"parallelism={run.parallelism.name}: algo={self.name} needs parallelism=process; algo=a2c "
                f"learns in one process."
            )


class A3CLearner(GradientLearner):
    """One step for each batch of n-step transitions, bootstrapped with the newest weights (Mnih et al. 2016)."""

    METRICS = (*ActorCriticLoss._fields, "policy_lag")

    def update(self, batch: Batch) -> None:
        """Take a gradient step on transitions of several processes."""
        assert batch.versions is not None
        policy_lag = (self.update_count - batch.versions.to(self.device, non_blocking=True)).float().mean()
        loss: ActorCriticLoss = self.backward(batch)
        self.optimizer_step(*loss, policy_lag)

    def loss_inputs(self, batch: Batch) -> Mapping[str, Tensor]:
        return {**batch.arrays(), "ent_coef": actor_critic.ent_coef(self)}

    def loss(self, ent_coef: Tensor, **transitions: Tensor) -> ActorCriticLoss:
        batch = Transitions(**transitions)
        # One autocast each, for weights that are cast without gradients would be reused with gradients.
        with precision(self.execution, self.device), gradients_off(self.execution):
            _, next_values = self.network.policy_and_value(batch.next_observations)
        returns = batch.rewards + batch.discounts * next_values.detach()
        weights = torch.full_like(returns, 1 / len(returns))
        return actor_critic.loss(self, batch.observations, batch.actions, returns, weights, ent_coef)
