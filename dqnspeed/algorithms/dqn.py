"""Deep Q-learning (Mnih et al. 2015) with n-step, double and dueling options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dqnspeed.algorithms.gradient import GradientLearner, as_tensors
from dqnspeed.config.options import given
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.precision import gradients_off, precision
from dqnspeed.memory import Batch
from dqnspeed.networks.heads import frozen_copy


class DQN(GradientLearner):
    """Trains a Q-network from batches of replay, against a target network that is copied now and then."""

    STATS = ("train/loss", "train/q_mean")

    def __init__(self, run: RunConfig, spec: EnvSpec, device: torch.device):
        super().__init__(run, spec, device)
        self.target = frozen_copy(self.network)
        if not run.execution.no_grad:
            self.target.requires_grad_(True)  # builds graphs nobody uses: the point of that rung
        self._target_sync = given(run.algo.target_sync)
        self._criterion = F.mse_loss if run.algo.loss == "mse" else F.smooth_l1_loss

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "target": self.target.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.target.load_state_dict(as_tensors(state["target"]))

    def begin(self, frames: np.ndarray) -> None:
        super().begin(frames)
        self.target.preprocess.measure(torch.from_numpy(frames))  # type: ignore[union-attr, operator]

    def update(self, batch: Batch) -> None:
        """One optimizer step on ``batch``, and a new target where it is time for one."""
        super().update(batch)
        if self.updates % self._target_sync == 0:
            self.target.load_state_dict(self.network.state_dict())

    def _arrays(self, batch: Batch) -> Mapping[str, np.ndarray | Tensor]:
        return batch.arrays()

    def _loss(
        self,
        observations: Tensor,
        actions: Tensor,
        rewards: Tensor,
        next_observations: Tensor,
        discounts: Tensor,
    ) -> tuple[Tensor, ...]:
        with precision(self._execution, self.device):
            q = self.network(observations)
            with gradients_off(self._execution):
                next_values = self._next_values(next_observations)
        q_taken = q.gather(1, actions[:, None])[:, 0]
        targets = rewards + discounts * next_values.detach()
        return self._criterion(q_taken, targets), q_taken.detach().mean()

    def _next_values(self, next_observations: Tensor) -> Tensor:
        target_q: Tensor = self.target(next_observations)
        if not self._algo.double:
            return target_q.max(dim=1).values
        best = self.network(next_observations).argmax(dim=1, keepdim=True)  # van Hasselt et al. 2016, equation 4
        return target_q.gather(1, best)[:, 0]
