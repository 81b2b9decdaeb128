"""PQN: Q(λ) on rollouts, without replay or target network (Gallici et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dqnspeed.algorithms.gradient import OnPolicyLearner
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.precision import precision
from dqnspeed.memory import RolloutBatch


class PQN(OnPolicyLearner):
    """Regresses a Q-network on λ-returns of what it saw itself; layer norm takes the place of a target network."""

    STATS = ("train/loss", "train/q_mean")

    def __init__(self, run: RunConfig, spec: EnvSpec, device: torch.device):
        super().__init__(run, spec, device)
        self._criterion = F.mse_loss if run.algo.loss == "mse" else F.smooth_l1_loss

    def _arrays(self, batch: RolloutBatch) -> Mapping[str, np.ndarray | Tensor]:
        return {"observations": batch.observations, "actions": batch.actions, "returns": batch.returns}

    def _loss(self, observations: Tensor, actions: Tensor, returns: Tensor) -> tuple[Tensor, ...]:
        with precision(self._execution, self.device):
            q = self.network(observations)
        q_taken = q.gather(1, actions[:, None])[:, 0]
        return self._criterion(q_taken, returns), q_taken.detach().mean()
