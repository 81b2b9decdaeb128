"""Advantage actor-critic (Mnih et al. 2016) on n-step transitions, in one process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dqnspeed.algorithms.actor_critic import ActorCritic, PolicyLearner, entropy_of
from dqnspeed.algorithms.base import Learner
from dqnspeed.algorithms.gradient import Loss
from dqnspeed.algorithms.learns_from import FromStream
from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.precision import gradients_off, precision
from dqnspeed.memory import Batch


@dataclass(frozen=True)
class NStepActorCritic(ActorCritic, FromStream):
    """What A2C and A3C share."""

    n_step: int = option("agent steps summed before bootstrapping", ge=1, le=1000)

    @property
    def piece(self) -> int:
        return self.n_step

    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        return A2CLearner(self, run, spec, device)


@register("algo", "a2c")
@dataclass(frozen=True)
class A2C(NStepActorCritic):
    def check(self, run: RunConfig) -> None:
        super().check(run)
        if run.parallelism.processes:
            raise ConfigError(
                f"parallelism={run.parallelism.name}: algo={self.name} learns in one process; algo=a3c is the same "
                f"with actor processes."
            )


class A2CLearner(PolicyLearner):
    """A2C and A3C: the advantage of n steps is their bootstrapped return less the value of the first state.

    A batch holds transitions of one process (``a2c``) or of several (``a3c``); the loss is the same.
    """

    STATS = ("train/loss", "train/policy_loss", "train/value_loss", "train/entropy")

    def loss_inputs(self, batch: Batch) -> Mapping[str, np.ndarray | Tensor]:
        return {**batch.arrays(), "entropy_coef": self._entropy_coef()}

    def loss(
        self,
        observations: Tensor,
        actions: Tensor,
        rewards: Tensor,
        next_observations: Tensor,
        discounts: Tensor,
        entropy_coef: Tensor,
    ) -> Loss:
        with precision(self._execution, self.device):
            logits, values = self.network.policy_and_value(observations)
            with gradients_off(self._execution):
                next_values = self.network.policy_and_value(next_observations)[1]
        targets = rewards + discounts * next_values.detach()
        log_probs = torch.log_softmax(logits, dim=1)
        taken = log_probs.gather(1, actions[:, None])[:, 0]
        policy_loss = -((targets - values.detach()) * taken).mean()
        value_loss = F.mse_loss(values, targets)
        entropy = entropy_of(log_probs).mean()
        loss = policy_loss + self._value_coef * value_loss - self._bonus(entropy, entropy_coef)
        return Loss((loss, policy_loss, value_loss, entropy))
