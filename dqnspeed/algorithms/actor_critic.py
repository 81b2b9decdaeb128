"""Options and entropy bonus of algorithms that learn a policy and a state value."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dqnspeed.algorithms.base import Algorithm
from dqnspeed.algorithms.learner import GradientLearner
from dqnspeed.buffers import RolloutBuffer
from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.optimizers import annealed
from dqnspeed.execution.precision import precision
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
        return PolicyValueNetwork(run, spec)

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


class ActorCriticLoss(NamedTuple):
    loss: Tensor  # () like the others
    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor


class ActorCriticLearner(GradientLearner):
    """Base class of learners with an entropy bonus, whose coefficient is annealed as the learning rate is.

    Entropy below ``algo.min_entropy`` times the entropy of random actions keeps the first coefficient.
    """

    def __init__(self, algo: Any, run: RunConfig, spec: EnvSpec, device: torch.device):
        super().__init__(run, spec, device)
        self.algo, self._min_entropy = algo, algo.min_entropy * math.log(spec.num_actions)

    def ent_coef(self) -> Tensor:
        """Coefficient ``() float32`` of the next update. A Python number that changes would make torch recompile."""
        coef = annealed(self.update_count, self.algo.ent_coef, self.algo.ent_coef_final, self.run.decay_updates)
        return coef.float() if isinstance(coef, Tensor) else torch.tensor(coef, dtype=torch.float32)

    def actor_critic_loss(
        self, observations: Tensor, actions: Tensor, returns: Tensor, weights: Tensor, ent_coef: Tensor
    ) -> ActorCriticLoss:
        """Loss of A2C and A3C (Mnih et al. 2016, section 4); the advantage is the return less the value of the state.

        Args:
            observations: ``(B, stack * C, ...)``; ``actions``: ``(B,) int64``; ``returns``: ``(B,)``.
            weights: ``(B,)`` of the transitions, whose sum is 1.
        """
        with precision(self.execution, self.device):
            logits, values = self.network.policy_and_value(observations)
        log_probs = torch.log_softmax(logits, dim=1)
        taken = log_probs.gather(1, actions[:, None])[:, 0]
        policy_loss = -((returns - values.detach()) * taken) @ weights
        value_loss = (values - returns) ** 2 @ weights
        entropy = entropy_of(log_probs) @ weights
        loss = policy_loss + self.algo.vf_coef * value_loss - self.entropy_bonus(entropy, ent_coef)
        return ActorCriticLoss(loss, policy_loss, value_loss, entropy)

    def entropy_bonus(self, entropy: Tensor, coef: Tensor) -> Tensor:
        """Bonus of a mean ``entropy``, nats, which a loss subtracts."""
        bonus = coef * entropy
        if self._min_entropy:
            bonus = bonus + (self.algo.ent_coef - coef) * entropy.clamp(max=self._min_entropy)
        return bonus

    def stats(self) -> dict[str, float]:
        found = {**super().stats(), "train/ent_coef": float(self.ent_coef())}
        if isinstance(self.buffer, RolloutBuffer):
            found["train/explained_variance"] = self.buffer.explained_variance
        return found


def entropy_of(log_probs: Tensor) -> Tensor:
    """Entropies ``(B,)``, nats, of policies given as ``(B, num_actions)`` log-probabilities."""
    return -(log_probs.exp() * log_probs).sum(dim=1)
