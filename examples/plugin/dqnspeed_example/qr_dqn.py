"""QR-DQN: the distribution of returns by a fixed number of quantiles (Dabney et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dqnspeed.algorithms.dqn import DeepQ, TDLosses
from dqnspeed.algorithms.iqn import quantile_huber_loss
from dqnspeed.buffers import Transitions
from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec
from dqnspeed.exploration.base import Exploration
from dqnspeed.networks.base import Network
from dqnspeed.networks.heads import QNetwork


@register("algo", "qr_dqn")
@dataclass(frozen=True)
class QRDQN(DeepQ):
    """Dabney et al. (2018), algorithm 1."""

    quantiles: int = option("quantiles of the returns of each action", ge=1, default=200)

    def network(self, run: RunConfig, spec: EnvSpec) -> Network:
        linear = typed(run.exploration, Exploration).linear  # noisy with exploration=noisy
        return FixedQuantilesNetwork(run, spec, linear, outputs=self.quantiles)

    def predict(self, network: Any, batch: Transitions) -> Tensor:
        taken = batch.actions[:, None, None].expand(-1, 1, self.quantiles)
        return network.quantiles(batch.observations).gather(1, taken)[:, 0]  # (B, N)

    def targets(self, network: Any, target: Any, batch: Transitions) -> Tensor:
        quantiles = target.quantiles(batch.next_observations)
        best = quantiles.mean(dim=2).argmax(dim=1)
        following = quantiles[torch.arange(len(best), device=best.device), best]
        return batch.rewards[:, None] + batch.discounts[:, None] * following  # (B, N)

    def losses(self, predicted: Tensor, targets: Tensor) -> TDLosses:
        taus = (torch.arange(self.quantiles, device=targets.device) + 0.5) / self.quantiles
        losses = quantile_huber_loss(predicted, targets, taus.expand_as(predicted))
        values = predicted.mean(dim=1)
        return TDLosses(losses, (targets.mean(dim=1) - values).abs(), values)


class FixedQuantilesNetwork(QNetwork):
    """Quantiles of the return of each action. A call gives their means."""

    def forward(self, observations: Tensor) -> Tensor:
        return self.quantiles(observations).mean(dim=2)

    def quantiles(self, observations: Tensor) -> Tensor:
        return self.streams(self.features(self.preprocess(observations)))  # (B, num_actions, N)
