"""The distribution of returns on fixed atoms (Bellemare et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dqnspeed.algorithms.base import Learner
from dqnspeed.algorithms.dqn import DeepQ, DeepQLearner
from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.precision import gradients_off, precision
from dqnspeed.exploration.base import Exploration
from dqnspeed.networks.base import Network
from dqnspeed.networks.heads import QNetwork


def project(probabilities: Tensor, rewards: Tensor, discounts: Tensor, support: Tensor) -> Tensor:
    """The distribution of ``reward + discount * return`` on the atoms of the returns themselves (algorithm 1).

    What falls between two atoms is shared between them, and what falls beyond the outermost belongs to those.

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
    double: bool = option("the online network chooses the next action, the target network says what follows it")
    atoms: int = option("returns that have a probability", ge=2)
    value_min: float = option("the least of them")
    value_max: float = option("the largest")

    def network(self, run: RunConfig, spec: EnvSpec) -> Network:
        return AtomsNetwork(self, run, spec)

    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        return C51Learner(self, run, spec, device)

    def check(self, run: RunConfig) -> None:
        super().check(run)
        if self.value_min >= self.value_max:
            raise ConfigError(f"algo.value_min={self.value_min}: must be less than algo.value_max={self.value_max}.")


class AtomsNetwork(QNetwork):
    """Probabilities of ``atoms`` returns for each action; called, it gives their means."""

    support: Tensor

    def __init__(self, algo: C51, run: RunConfig, spec: EnvSpec):
        linear = typed(run.exploration, Exploration).linear
        super().__init__(run.model, spec.observation_shape, spec.num_actions, spec.largest, linear, algo.atoms)
        support = torch.linspace(algo.value_min, algo.value_max, algo.atoms)
        self.register_buffer("support", support, persistent=False)

    def forward(self, observations: Tensor) -> Tensor:
        return mean_return(self.log_probs(observations).exp(), self.support)

    def log_probs(self, observations: Tensor) -> Tensor:
        """``(B, num_actions, atoms) float32``."""
        return torch.log_softmax(self.streams(self.features(self.preprocess(observations))), dim=2)


class C51Learner(DeepQLearner):
    """Moves the distribution of the action taken towards that of the reward and what follows.

    The loss is the cross-entropy of the two; the error of a transition is the part of it that learning can remove, the
    Kullback-Leibler divergence (Hessel et al. 2018, "The integrated agent").
    """

    network: AtomsNetwork
    target: AtomsNetwork

    def __init__(self, algo: C51, run: RunConfig, spec: EnvSpec, device: torch.device):
        super().__init__(algo, run, spec, device)
        self._double = algo.double

    def losses(
        self, observations: Tensor, actions: Tensor, rewards: Tensor, next_observations: Tensor, discounts: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows, support = torch.arange(len(actions), device=self.device), self.network.support
        with precision(self._execution, self.device):
            # Gathered, for the compiler's kernels of the gradient of an index may write outside of arrays on a CPU.
            taken = actions[:, None, None].expand(-1, 1, len(support))
            log_probs = self.network.log_probs(observations).gather(1, taken)[:, 0]
            with gradients_off(self._execution):
                following = self.target.log_probs(next_observations).exp()
                values = self.network(next_observations) if self._double else mean_return(following, support)
                following = following[rows, values.argmax(dim=1)]
        targets = project(following.detach(), rewards, discounts, support)
        losses = -(targets * log_probs).sum(dim=1)
        errors = losses.detach() - torch.special.entr(targets).sum(dim=1)
        return losses, errors, mean_return(log_probs.detach().exp(), support)
