"""PQN: Q(lambda) on rollouts, without a replay or a target network (Gallici et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dqnspeed.algorithms.base import Learner
from dqnspeed.algorithms.data_sources import FromRollouts
from dqnspeed.algorithms.dqn import CRITERIA
from dqnspeed.algorithms.learner import GradientLearner
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

    epochs: int = option("times a rollout is learnt from", ge=1)  # type: ignore[misc]
    q_lambda: float = option("lambda of Q(lambda): 0: 1-step targets, 1: returns to the rollout's end", ge=0, le=1)
    loss: str = option("loss on the TD error", choices=tuple(CRITERIA))

    @property
    def return_lambda(self) -> float:
        return self.q_lambda

    def network(self, run: RunConfig, spec: EnvSpec) -> Network:
        return QNetwork(run, spec, typed(run.exploration, Exploration).linear)

    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        return PQNLearner(self, run, spec, device)

    def policy(
        self, run: RunConfig, spec: EnvSpec, network: Network, device: torch.device, rng: np.random.Generator
    ) -> Policy:
        exploration = typed(run.exploration, Exploration)
        return exploration.policy(network, spec.num_actions, run.execution, device, rng, values=True)


class PQNLoss(NamedTuple):
    loss: Tensor  # ()
    q_mean: Tensor  # (), mean value of the actions taken


class PQNLearner(GradientLearner):
    """Regression of action values on the lambda-returns of fresh rollouts (Gallici et al. 2024, algorithm 1)."""

    METRICS = (*PQNLoss._fields, "policy_lag")

    def __init__(self, algo: PQN, run: RunConfig, spec: EnvSpec, device: torch.device):
        super().__init__(run, spec, device)
        self._criterion = CRITERIA[algo.loss]

    def update(self, batch: RolloutBatch) -> None:
        """Take a gradient step on transitions of the newest rollout."""
        loss: PQNLoss = self.backward(batch)
        self.optimizer_step(*loss, batch.lags @ batch.weights)

    def loss_inputs(self, batch: RolloutBatch) -> Mapping[str, Tensor]:
        names = ("observations", "actions", "returns", "weights")
        return {name: getattr(batch, name) for name in names}

    def loss(self, observations: Tensor, actions: Tensor, returns: Tensor, weights: Tensor) -> PQNLoss:
        with precision(self.execution, self.device):
            q = self.network(observations)
        q_taken = q.gather(1, actions[:, None])[:, 0]
        return PQNLoss(self._criterion(q_taken, returns, reduction="none") @ weights, q_taken.detach() @ weights)
