"""The distribution of returns by its quantiles, at fractions drawn anew (Dabney et al. 2018)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dqnspeed.algorithms.base import Learner
from dqnspeed.algorithms.dqn import DeepQ, DeepQLearner
from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.precision import gradients_off, precision
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
    double: bool = option("the online network chooses the next action, the target network says what follows it")
    samples: int = option("fractions at which an update looks at the action taken", ge=1)
    target_samples: int = option("fractions at which it looks at what follows", ge=1)
    acting_samples: int = option("fractions whose mean is an action's value", ge=1)
    kappa: float = option("TD error at which the square gives way to the line", gt=0)

    def network(self, run: RunConfig, spec: EnvSpec) -> Network:
        return QuantileNetwork(self, run, spec)

    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        return IQNLearner(self, run, spec, device)


class QuantileNetwork(QNetwork):
    """Quantiles of the return of each action, at any fraction; called, it gives the mean of evenly spaced ones.

    The paper draws those fractions too (section 3.1); evenly spaced ones have nearly the same mean, and values
    without noise; a single one is the median. What is multiplied by a fraction's embedding are features that are
    learnt: of an observation itself, what is near zero would be so at any fraction.
    """

    acting_taus: Tensor

    def __init__(self, algo: IQN, run: RunConfig, spec: EnvSpec):
        linear = typed(run.exploration, Exploration).linear
        super().__init__(run.model, spec.observation_shape, spec.num_actions, spec.largest, linear, learnt=True)
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


class IQNLearner(DeepQLearner):
    """Moves quantiles of the action taken towards samples of the reward and what follows; the error of a transition is
    the difference of their means."""

    network: QuantileNetwork
    target: QuantileNetwork

    def __init__(self, algo: IQN, run: RunConfig, spec: EnvSpec, device: torch.device):
        super().__init__(algo, run, spec, device)
        self._double, self._kappa = algo.double, algo.kappa
        self._samples, self._target_samples = algo.samples, algo.target_samples

    def losses(
        self, observations: Tensor, actions: Tensor, rewards: Tensor, next_observations: Tensor, discounts: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        count = len(actions)
        rows = torch.arange(count, device=self.device)
        taus = torch.rand(count, self._samples, device=self.device)
        with precision(self._execution, self.device):
            # Gathered, for the compiler's kernels of the gradient of an index may write outside of arrays on a CPU.
            taken = actions[:, None, None].expand(-1, self._samples, 1)
            quantiles = self.network.quantiles(observations, taus).gather(2, taken)[:, :, 0]
            with gradients_off(self._execution):
                best = (self.network if self._double else self.target)(next_observations).argmax(dim=1)
                drawn = torch.rand(count, self._target_samples, device=self.device)
                following = self.target.quantiles(next_observations, drawn)[rows, :, best]
        targets = rewards[:, None] + discounts[:, None] * following.detach()
        losses, values = quantile_huber_loss(quantiles, targets, taus, self._kappa), quantiles.mean(dim=1)
        return losses, (targets.mean(dim=1) - values).abs(), values
