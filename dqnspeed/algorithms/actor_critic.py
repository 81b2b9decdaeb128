"""What actor-critics share: a policy that actions are sampled from, a value, and an entropy bonus."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnspeed.algorithms.base import Algorithm
from dqnspeed.algorithms.learner import OnPolicyLearner
from dqnspeed.buffers import RolloutBuffer
from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.optimizers import annealed
from dqnspeed.exploration.policy import Policy
from dqnspeed.exploration.sampling import CategoricalPolicy
from dqnspeed.networks.base import Network
from dqnspeed.networks.heads import PolicyValueNetwork


@dataclass(frozen=True)
class ActorCritic(Algorithm):
    """An algorithm that samples its actions from the policy that it learns."""

    outputs = "logits of the policy"

    ent_coef: float = option("weight of the entropy bonus", ge=0)
    ent_coef_final: float = option(
        "its weight at last, which it reaches in a straight line as the learning rate does", ge=0
    )
    min_entropy: float = option(
        "share of the entropy of random actions below which the bonus keeps its first weight", ge=0, le=1
    )
    vf_coef: float = option("weight of the value loss (ppo: of half of it)", ge=0)

    def network(self, run: RunConfig, spec: EnvSpec) -> Network:
        return PolicyValueNetwork(run.model, spec.observation_shape, spec.num_actions, spec.largest)

    def policy(
        self, run: RunConfig, spec: EnvSpec, network: Network, device: torch.device, rng: np.random.Generator
    ) -> Policy:
        return CategoricalPolicy(network, run.execution, device, rng)

    @property
    def entropy_bonus(self) -> float | None:
        return self.ent_coef

    def annealed(self) -> Iterator[tuple[str, float, float]]:
        yield "entropy bonus", self.ent_coef, self.ent_coef_final

    def check(self, run: RunConfig) -> None:
        super().check(run)
        if run.model.dueling:
            raise ConfigError(
                f"model.dueling=true: belongs to action values; algo={self.name} has a policy and a value."
            )


class PolicyLearner(OnPolicyLearner):
    """A learner of a policy and a value, with an entropy bonus that may be annealed as the learning rate is."""

    _rollouts: RolloutBuffer | None = None

    def __init__(self, algo: ActorCritic, run: RunConfig, spec: EnvSpec, device: torch.device):
        super().__init__(run, spec, device)
        self._entropy, self._ent_coef_final, self._vf_coef = algo.ent_coef, algo.ent_coef_final, algo.vf_coef
        self._min_entropy = algo.min_entropy * math.log(spec.num_actions)

    def attach(self, buffer: Any) -> None:
        super().attach(buffer)
        self._rollouts = buffer

    def stats(self) -> dict[str, float]:
        stats = {**super().stats(), "train/ent_coef": float(self._ent_coef())}
        if self._rollouts is not None:
            stats["train/explained_variance"] = self._rollouts.explained_variance
        return stats

    def _ent_coef(self) -> Tensor:
        """Weight of the bonus now, ``() float32``: a changing number would make torch recompile the loss."""
        weight = annealed(self.now, self._entropy, self._ent_coef_final, self._decay_updates)
        return weight.float().view(()) if isinstance(weight, Tensor) else torch.tensor(weight, dtype=torch.float32)

    def _bonus(self, entropy: Tensor, coef: Tensor) -> Tensor:
        """What is subtracted from the loss for a mean ``entropy``, nats, of which the part above the floor has the
        annealed weight ``coef``, and that below it the first."""
        bonus = coef * entropy
        if self._min_entropy:
            bonus = bonus + (self._entropy - coef) * entropy.clamp(max=self._min_entropy)
        return bonus


def entropy_of(log_probs: Tensor) -> Tensor:
    """Entropies ``(B,)``, nats, of policies given as ``(B, num_actions)`` log-probabilities."""
    return -(log_probs.exp() * log_probs).sum(dim=1)
