"""Deep Q-learning (Mnih et al. 2015) with n-step, double and dueling options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dqnspeed.algorithms.base import Learner
from dqnspeed.algorithms.data_sources import FromReplay
from dqnspeed.algorithms.learner import GradientLearner, Loss, as_tensors
from dqnspeed.buffers import Batch
from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.precision import gradients_off, precision
from dqnspeed.exploration.base import Exploration
from dqnspeed.networks.base import Network, frozen_copy
from dqnspeed.networks.heads import QNetwork


@dataclass(frozen=True)
class DeepQ(FromReplay):
    """What deep Q-learning and its kin share: a target network that is copied now and then."""

    target_update_every: int = option("updates between copies into the target network", ge=1)

    def network(self, run: RunConfig, spec: EnvSpec) -> Network:
        linear = typed(run.exploration, Exploration).linear
        return QNetwork(run.model, spec.observation_shape, spec.num_actions, spec.largest, linear)


@dataclass(frozen=True)
class ScalarQ(DeepQ):
    """Those whose action values are numbers, that are moved towards a target."""

    loss: str = option("loss on the TD error", choices=("mse", "huber"))


@register("algo", "dqn")
@dataclass(frozen=True)
class DQN(ScalarQ):
    double: bool = option("double DQN: the online network chooses, the target network values")

    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        return DQNLearner(self, run, spec, device)


class DeepQLearner(GradientLearner):
    """Trains a network from batches of replay, against a target network that is copied now and then."""

    STATS: ClassVar[tuple[str, ...]] = ("train/loss", "train/q_mean")

    def __init__(self, algo: DeepQ, run: RunConfig, spec: EnvSpec, device: torch.device):
        super().__init__(run, spec, device)
        self.target = frozen_copy(self.network)
        if not run.execution.no_grad:
            self.target.requires_grad_(True)  # builds graphs nobody uses: the point of that rung
        self._target_update_every = algo.target_update_every

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"target": self.target.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.target.load_state_dict(as_tensors(state["target"]))

    def begin(self, frames: np.ndarray) -> None:
        super().begin(frames)
        self.target.preprocess.measure(torch.from_numpy(frames))

    def step(self, batch: Batch) -> Loss:
        """One optimizer step; a replay that draws by errors is given those of the batch."""
        loss = super().step(batch)
        assert loss is not None
        if batch.reprioritize is not None and loss.errors is not None:
            batch.reprioritize(loss.errors)
        return loss

    def settles(self, updates: int) -> bool:
        return updates % self._target_update_every == 0

    def settle(self) -> None:
        """Copy the network into the target network."""
        self.target.load_state_dict(self.network.state_dict())

    def loss_inputs(self, batch: Batch) -> Mapping[str, np.ndarray | Tensor]:
        return batch.arrays()

    def loss(
        self,
        observations: Tensor,
        actions: Tensor,
        rewards: Tensor,
        next_observations: Tensor,
        discounts: Tensor,
        weights: Tensor | None = None,
    ) -> Loss:
        """The mean of :meth:`losses`, each weighted by how much likelier its replay drew it than a uniform one."""
        losses, errors, q_taken = self.losses(observations, actions, rewards, next_observations, discounts)
        loss = losses.mean() if weights is None else (weights * losses).mean()
        return Loss((loss, q_taken.detach().mean()), errors.detach())

    def losses(
        self, observations: Tensor, actions: Tensor, rewards: Tensor, next_observations: Tensor, discounts: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Of each transition: its loss, the size of its error, and the value of the action taken, ``(B,)`` each."""
        raise NotImplementedError


class ScalarQLearner(DeepQLearner):
    """Regresses the value of the action taken on a target."""

    def __init__(self, algo: ScalarQ, run: RunConfig, spec: EnvSpec, device: torch.device):
        super().__init__(algo, run, spec, device)
        self._loss = F.mse_loss if algo.loss == "mse" else F.smooth_l1_loss

    def losses(
        self, observations: Tensor, actions: Tensor, rewards: Tensor, next_observations: Tensor, discounts: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        with precision(self._execution, self.device):
            q = self.network(observations)
            with gradients_off(self._execution):
                targets = self.target_values(observations, actions, rewards, next_observations, discounts)
        q_taken = q.gather(1, actions[:, None])[:, 0]
        targets = targets.detach()
        return self.criterion(q_taken, targets), (q_taken - targets).abs(), q_taken

    def criterion(self, values: Tensor, targets: Tensor) -> Tensor:
        """The loss of each transition, ``(B,)``, whose action has the value ``values`` and should have ``targets``."""
        return self._loss(values, targets, reduction="none")

    def target_values(
        self, observations: Tensor, actions: Tensor, rewards: Tensor, next_observations: Tensor, discounts: Tensor
    ) -> Tensor:
        """What each transition's action is worth, ``(B,)``."""
        raise NotImplementedError


class DQNLearner(ScalarQLearner):
    """The target is the reward and the value of the best next action."""

    JOINS = True

    def __init__(self, algo: DQN, run: RunConfig, spec: EnvSpec, device: torch.device):
        super().__init__(algo, run, spec, device)
        self._double = algo.double

    def target_values(
        self, observations: Tensor, actions: Tensor, rewards: Tensor, next_observations: Tensor, discounts: Tensor
    ) -> Tensor:
        target_q: Tensor = self.target(next_observations)
        if not self._double:
            return rewards + discounts * target_q.max(dim=1).values
        best = self.network(next_observations).argmax(dim=1, keepdim=True)  # van Hasselt et al. 2016, equation 4
        return rewards + discounts * target_q.gather(1, best)[:, 0]
