"""PQN: Q(λ) on rollouts, without replay or target network (Gallici et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dqnspeed.algorithms.base import Learner
from dqnspeed.algorithms.data_sources import FromRollouts
from dqnspeed.algorithms.learner import Loss, OnPolicyLearner
from dqnspeed.buffers import RolloutBatch
from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.precision import precision
from dqnspeed.exploration.base import Exploration
from dqnspeed.exploration.policy import Policy
from dqnspeed.networks.base import Network
from dqnspeed.networks.heads import QNetwork


@register("algo", "pqn")
@dataclass(frozen=True)
class PQN(FromRollouts):
    uses = ("model", "optimizer", "exploration")

    loss: str = option("loss on the TD error", choices=("mse", "huber"))

    def network(self, run: RunConfig, spec: EnvSpec) -> Network:
        linear = typed(run.exploration, Exploration).linear
        return QNetwork(run.model, spec.observation_shape, spec.num_actions, spec.largest, linear)

    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        return PQNLearner(self, run, spec, device)

    def policy(
        self, run: RunConfig, spec: EnvSpec, network: Network, device: torch.device, rng: np.random.Generator
    ) -> Policy:
        exploration = typed(run.exploration, Exploration)
        return exploration.policy(network, spec.num_actions, run.execution, device, rng, values=True)


class PQNLearner(OnPolicyLearner):
    """Regresses a Q-network on λ-returns of its own experience; layer norm replaces the target network."""

    STATS = ("train/loss", "train/q_mean")

    def __init__(self, algo: PQN, run: RunConfig, spec: EnvSpec, device: torch.device):
        super().__init__(run, spec, device)
        self._criterion = F.mse_loss if algo.loss == "mse" else F.smooth_l1_loss

    def loss_inputs(self, batch: RolloutBatch) -> Mapping[str, np.ndarray | Tensor]:
        names = ("observations", "actions", "returns", "weights")
        return {name: getattr(batch, name) for name in names}

    def loss(self, observations: Tensor, actions: Tensor, returns: Tensor, weights: Tensor) -> Loss:
        with precision(self._execution, self.device):
            q = self.network(observations)
        q_taken = q.gather(1, actions[:, None])[:, 0]
        return Loss((self._criterion(q_taken, returns, reduction="none") @ weights, q_taken.detach() @ weights))
