"""A3C with data parallelism (chapter 11): processes act, and send their experience to one learner.

A3C is slightly off-policy: transitions wait in a queue while the weights change, without a correction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnspeed.algorithms.a2c import ActorCriticLearner
from dqnspeed.algorithms.actor_critic import ActorCritic
from dqnspeed.algorithms.base import Learner
from dqnspeed.algorithms.data_sources import FromStream
from dqnspeed.algorithms.learner import Loss
from dqnspeed.buffers import Batch
from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.precision import gradients_off, precision


@register("algo", "a3c")
@dataclass(frozen=True)
class A3C(ActorCritic, FromStream):
    n_step: int = option("agent steps summed before bootstrapping", ge=1, le=1000)
    queue_batches: int = option("batches that may wait for the learner", ge=1)

    @property
    def piece(self) -> int:
        return self.n_step

    @property
    def queue(self) -> int:
        return self.queue_batches

    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        return A3CLearner(self, run, spec, device)

    def check(self, run: RunConfig) -> None:
        super().check(run)
        if not run.parallelism.processes:
            raise ConfigError(
                f"parallelism={run.parallelism.name}: algo={self.name} needs parallelism=process; algo=a2c "
                f"learns in one process."
            )


class A3CLearner(ActorCriticLearner):
    """Learner from n-step transitions of several processes, bootstrapped with the newest weights."""

    def attach(self, buffer: Any) -> None:
        """Attach nothing: each transition carries the version of the weights that acted."""

    def measured(self, batch: Batch) -> Sequence[Tensor]:
        assert batch.versions is not None
        return [(self.now - batch.versions.to(self.device, non_blocking=True)).float().mean()]

    def loss_inputs(self, batch: Batch) -> Mapping[str, np.ndarray | Tensor]:
        return {**batch.arrays(), "ent_coef": self._ent_coef()}

    def loss(
        self,
        observations: Tensor,
        actions: Tensor,
        rewards: Tensor,
        next_observations: Tensor,
        discounts: Tensor,
        ent_coef: Tensor,
    ) -> Loss:
        with precision(self._execution, self.device), gradients_off(self._execution):
            next_values = self.network.policy_and_value(next_observations)[1]
        returns = rewards + discounts * next_values.detach()
        weights = torch.full_like(rewards, 1 / len(rewards))
        return self.actor_critic_loss(observations, actions, returns, weights, ent_coef)
