"""IQN: quantiles of the distribution of returns at random fractions (Dabney et al. 2018)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dqnspeed.algorithms.dqn import DeepQ, TDLosses
from dqnspeed.buffers import Transitions
from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec
from dqnspeed.exploration.base import Exploration
from dqnspeed.networks.base import Network
from dqnspeed.networks.heads import QNetwork


def quantile_huber_loss(predicted: Tensor, targets: Tensor, taus: Tensor, kappa: float = 1.0) -> Tensor:
    """Huber quantile regression (equation 3): summed over the fractions, mean over the targets.

    Args:
        predicted: ``(B, N)`` quantiles at the fractions ``taus`` ``(B, N)``.
        targets: ``(B, N')`` samples of the return.
        kappa: TD error at which the square gives way to the line, more than 0.

    Returns:
        ``(B,)``, a loss for each transition.
    """
    errors = targets[:, None, :] - predicted[:, :, None]  # (B, N, N')
    size = errors.abs()
    huber = torch.where(size <= kappa, 0.5 * errors.square(), kappa * (size - 0.5 * kappa))
    weights = (taus[:, :, None] - (errors < 0).to(taus.dtype)).abs()
    return (weights * huber / kappa).mean(dim=2).sum(dim=1)


class CosineEmbedding(nn.Module):
    """Features of fractions (equation 4): ReLU of a linear layer on ``cos(pi i tau)``, i from 0.

    Args:
        units: features for each fraction, as many as the network's own that they are multiplied with.
        cosines: of each fraction, 64 in the paper.
    """

    frequencies: Tensor

    def __init__(self, units: int, cosines: int = 64):
        super().__init__()
        self.linear = nn.Linear(cosines, units)
        self.register_buffer("frequencies", math.pi * torch.arange(cosines, dtype=torch.float32), persistent=False)

    def forward(self, taus: Tensor) -> Tensor:
        """``(B, N)`` fractions to ``(B, N, units)``."""
        return F.relu(self.linear(torch.cos(taus[:, :, None] * self.frequencies)))


@register("algo", "iqn")
@dataclass(frozen=True)
class IQN(DeepQ):
    """Quantile regression on samples of the return (equation 3).

    The error of a transition is the difference of the means of prediction and target.
    """

    double: bool = option("the online network chooses the next action, the target network evaluates it")
    samples: int = option("fractions (N) for the prediction of an update", ge=1)
    target_samples: int = option("fractions (N') for the target of an update", ge=1)
    acting_samples: int = option("fractions (K) whose mean is the value of an action, to act", ge=1)
    kappa: float = option("TD error at which the square gives way to the line", gt=0)

    def network(self, run: RunConfig, spec: EnvSpec) -> Network:
        return QuantileNetwork(self, run, spec)

    def predict(self, network: Any, batch: Transitions) -> tuple[Tensor, Tensor]:
        """Quantiles ``(B, samples)`` of the returns of the actions taken, and their fractions."""
        taus = torch.rand(len(batch.actions), self.samples, device=batch.actions.device)
        taken = batch.actions[:, None, None].expand(-1, self.samples, 1)
        return network.quantiles(batch.observations, taus).gather(2, taken)[:, :, 0], taus

    def targets(self, network: Any, target: Any, batch: Transitions) -> Tensor:
        """Samples ``(B, target_samples)`` of the returns."""
        best = (network if self.double else target)(batch.next_observations).argmax(dim=1)
        taus = torch.rand(len(best), self.target_samples, device=best.device)
        rows = torch.arange(len(best), device=best.device)
        following: Tensor = target.quantiles(batch.next_observations, taus)[rows, :, best]
        return batch.rewards[:, None] + batch.discounts[:, None] * following

    def losses(self, predicted: tuple[Tensor, Tensor], targets: Tensor) -> TDLosses:
        quantiles, taus = predicted
        values = quantiles.mean(dim=1)
        losses = quantile_huber_loss(quantiles, targets, taus, self.kappa)
        return TDLosses(losses, (targets.mean(dim=1) - values).abs(), values)


class QuantileNetwork(QNetwork):
    """Quantiles of the return of each action, at any fraction. A call gives the means of evenly spaced quantiles.

    The paper draws the fractions of these means too (section 3.1). Evenly spaced fractions have nearly the same mean
    and add no noise; a single one is the median. The embedding of a fraction multiplies learnt features: numbers near
    zero in an observation would stay near zero at any fraction.
    """

    acting_taus: Tensor

    def __init__(self, algo: IQN, run: RunConfig, spec: EnvSpec):
        super().__init__(run, spec, typed(run.exploration, Exploration).linear, learnt=True)
        self.embedding = CosineEmbedding(self.units[0])
        taus = (torch.arange(algo.acting_samples) + 0.5) / algo.acting_samples
        self.register_buffer("acting_taus", taus, persistent=False)

    def forward(self, observations: Tensor) -> Tensor:
        return self.quantiles(observations, self.acting_taus.expand(len(observations), -1)).mean(dim=1)

    def quantiles(self, observations: Tensor, taus: Tensor) -> Tensor:
        """``(B, N, num_actions) float32`` at the fractions ``taus`` ``(B, N)``."""
        features = self.features(self.preprocess(observations))
        both = features[:, None] * self.embedding(taus)  # (B, N, F)
        quantiles: Tensor = self.streams(both.flatten(0, 1))[:, :, 0].unflatten(0, taus.shape)
        return quantiles
