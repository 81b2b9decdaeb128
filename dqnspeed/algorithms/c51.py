"""The distribution of returns on fixed atoms (Bellemare et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dqnspeed.algorithms.dqn import DeepQ, TDLosses
from dqnspeed.buffers import Transitions
from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec
from dqnspeed.exploration.base import Exploration
from dqnspeed.networks.base import Network
from dqnspeed.networks.heads import QNetwork


def project(probabilities: Tensor, rewards: Tensor, discounts: Tensor, support: Tensor) -> Tensor:
    """The distribution of ``reward + discount * return`` on the atoms of the returns themselves (algorithm 1).

    A return between two atoms is shared between both; one beyond the outermost atoms belongs to the nearest.

    Args:
        probabilities: ``(B, Z) float32`` of the atoms.
        rewards: ``(B,)``; ``discounts``: ``(B,)``, 0 where the episode terminated.
        support: ``(Z,)`` equally spaced returns, ascending, at least two.

    Returns:
        ``(B, Z)`` probabilities of the same atoms.
    """
    low, high = support[0], support[-1]
    spacing = (high - low) / (len(support) - 1)
    returns = (rewards[:, None] + discounts[:, None] * support).clamp(low, high)
    apart = (returns[:, None, :] - support[:, None]).abs() / spacing  # (B, Z to, Z from)
    shares = (1 - apart).clamp(min=0)
    return (shares * probabilities[:, None, :]).sum(dim=2)


def mean_return(probabilities: Tensor, support: Tensor) -> Tensor:
    """``(..., Z)`` probabilities of the atoms ``(Z,)`` to ``(...)`` means, in float32 also where autocast would have a
    matrix product computed in bf16."""
    return (probabilities * support).sum(dim=-1)


@register("algo", "c51")
@dataclass(frozen=True)
class C51(DeepQ):
    """Cross-entropy of the predicted distribution and the projected target distribution (algorithm 1).

    The error of a transition is the reducible part of its loss, the Kullback-Leibler divergence (Hessel et al. 2018,
    "The integrated agent").
    """

    double: bool = option("the online network chooses the next action, the target network evaluates it")
    atoms: int = option("number of returns that have a probability (atoms)", ge=2)
    value_min: float = option("smallest return that has a probability (V_min)")
    value_max: float = option("largest return that has a probability (V_max)")

    def network(self, run: RunConfig, spec: EnvSpec) -> Network:
        return AtomsNetwork(self, run, spec)

    def predict(self, network: Any, batch: Transitions) -> tuple[Tensor, Tensor]:
        """Log-probabilities ``(B, Z)`` of the returns of the actions taken, and the support ``(Z,)``."""
        taken = batch.actions[:, None, None].expand(-1, 1, self.atoms)
        return network.log_probs(batch.observations).gather(1, taken)[:, 0], network.support

    def targets(self, network: Any, target: Any, batch: Transitions) -> Tensor:
        """Probabilities ``(B, Z)`` of the returns."""
        probabilities = target.log_probs(batch.next_observations).exp()
        next_q = network(batch.next_observations) if self.double else mean_return(probabilities, target.support)
        rows = torch.arange(len(next_q), device=next_q.device)
        return project(probabilities[rows, next_q.argmax(dim=1)], batch.rewards, batch.discounts, target.support)

    def losses(self, predicted: tuple[Tensor, Tensor], targets: Tensor) -> TDLosses:
        log_probs, support = predicted
        losses = -(targets * log_probs).sum(dim=1)
        divergences = losses.detach() - torch.special.entr(targets).sum(dim=1)
        return TDLosses(losses, divergences, mean_return(log_probs.detach().exp(), support))

    def check(self, run: RunConfig) -> None:
        super().check(run)
        if self.value_min >= self.value_max:
            raise ConfigError(f"algo.value_min={self.value_min}: must be less than algo.value_max={self.value_max}.")


class AtomsNetwork(QNetwork):
    """Probabilities of ``algo.atoms`` returns for each action. A call gives the mean returns."""

    support: Tensor

    def __init__(self, algo: C51, run: RunConfig, spec: EnvSpec):
        super().__init__(run, spec, typed(run.exploration, Exploration).linear, algo.atoms)
        support = torch.linspace(algo.value_min, algo.value_max, algo.atoms)
        self.register_buffer("support", support, persistent=False)

    def forward(self, observations: Tensor) -> Tensor:
        return mean_return(self.log_probs(observations).exp(), self.support)

    def log_probs(self, observations: Tensor) -> Tensor:
        """``(B, num_actions, atoms) float32``."""
        return torch.log_softmax(self.streams(self.features(self.preprocess(observations))), dim=2)
