"""DQN (Mnih et al. 2015), the base class of its variants, and their common learner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from dqnspeed.algorithms.base import Learner
from dqnspeed.algorithms.data_sources import FromReplay
from dqnspeed.algorithms.learner import GradientLearner
from dqnspeed.algorithms.target_network import TargetNetwork
from dqnspeed.buffers import Batch, Transitions
from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.precision import gradients_off, precision
from dqnspeed.exploration.base import Exploration
from dqnspeed.networks.base import Network
from dqnspeed.networks.heads import QNetwork

CRITERIA = {"mse": F.mse_loss, "huber": F.smooth_l1_loss}


class TDLosses(NamedTuple):
    """Losses of B transitions, ``(B,) float32`` each."""

    losses: Tensor
    errors: Tensor  # absolute TD errors, the priorities of a prioritized replay buffer
    values: Tensor  # Q(s, a), for the metrics


@dataclass(frozen=True)
class DeepQ(FromReplay):
    """Base class of DQN and its variants, which regress Q(s, a) onto a target (Mnih et al. 2015, equation 2).

    A variant defines :meth:`targets`. It may define :meth:`criterion` for another loss, or :meth:`network`,
    :meth:`predict` and :meth:`losses` for a prediction that is not a number, such as quantiles. All of them compute
    with tensors on one device, and ``execution.compile`` may compile them. ``network`` and ``target`` are the online
    and the target network.
    """

    target_update_every: int = option("updates between copies of the network to the target network", ge=1)

    def network(self, run: RunConfig, spec: EnvSpec) -> Network:
        return QNetwork(run, spec, typed(run.exploration, Exploration).linear)

    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        return DQNLearner(self, run, spec, device)

    def predict(self, network: Any, batch: Transitions) -> Any:
        """Predictions for the actions taken; for DQN Q(s, a) ``(B,)``."""
        return network(batch.observations).gather(1, batch.actions[:, None])[:, 0]

    def targets(self, network: Any, target: Any, batch: Transitions) -> Tensor:
        """Targets of the predictions ``(B, ...)``, without gradients."""
        raise NotImplementedError

    def losses(self, predicted: Any, targets: Tensor) -> TDLosses:
        """Losses of the predictions, by default their :meth:`criterion`."""
        return TDLosses(self.criterion(predicted, targets), (predicted - targets).abs(), predicted)

    def criterion(self, values: Tensor, targets: Tensor) -> Tensor:
        """Loss ``(B,)`` of each value ``(B,)``, by default the Huber loss."""
        return F.smooth_l1_loss(values, targets, reduction="none")


@register("algo", "dqn")
@dataclass(frozen=True)
class DQN(DeepQ):
    """DQN of Mnih et al. (2015), or double DQN of van Hasselt et al. (2016)."""

    compiles_gradients = True

    loss: str = option("loss on the TD error", choices=tuple(CRITERIA))
    double: bool = option("double DQN: the online network selects the next action, the target network evaluates it")

    def targets(self, network: Any, target: Any, batch: Transitions) -> Tensor:
        next_q: Tensor = target(batch.next_observations)
        if self.double:  # van Hasselt et al. (2016), equation 4
            best = network(batch.next_observations).argmax(dim=1, keepdim=True)
            next_values = next_q.gather(1, best)[:, 0]
        else:
            next_values = next_q.max(dim=1).values
        return batch.rewards + batch.discounts * next_values

    def criterion(self, values: Tensor, targets: Tensor) -> Tensor:
        return CRITERIA[self.loss](values, targets, reduction="none")


class DQNLoss(NamedTuple):
    loss: Tensor  # ()
    q_mean: Tensor  # (), mean value of the actions taken
    errors: Tensor  # (B,)


class DQNLearner(GradientLearner):
    """Algorithm 1 of Mnih et al. (2015); ``algo`` gives predictions, targets and losses."""

    METRICS = ("loss", "q_mean")
    target: TargetNetwork

    def __init__(self, algo: DeepQ, run: RunConfig, spec: EnvSpec, device: torch.device):
        super().__init__(run, spec, device)
        self._algo = algo
        self.target = TargetNetwork(self.network, algo.target_update_every, run.execution.no_grad)

    def update(self, batch: Batch) -> None:
        """Take a gradient step, update priorities, and sync the target network when it is due."""
        loss: DQNLoss = self.backward(batch)
        self.optimizer_step(loss.loss, loss.q_mean)
        if batch.update_priorities is not None:
            batch.update_priorities(loss.errors)
        if self.target.is_due(self.updates):
            self.target.sync()

    def loss_inputs(self, batch: Batch) -> Mapping[str, Tensor]:
        return batch.arrays()

    def loss(self, weights: Tensor | None = None, **transitions: Tensor) -> DQNLoss:
        """Mean loss of the transitions, with importance-sampling ``weights`` ``(B,)`` if given."""
        batch = Transitions(**transitions)
        with precision(self.execution, self.device):
            predicted = self._algo.predict(self.network, batch)
            with gradients_off(self.execution):
                targets = self._algo.targets(self.network, self.target.network, batch)
        losses, errors, values = self._algo.losses(predicted, targets.detach())
        loss = losses.mean() if weights is None else (weights * losses).mean()
        return DQNLoss(loss, values.detach().mean(), errors.detach())
