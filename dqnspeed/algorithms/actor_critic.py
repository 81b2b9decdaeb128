"""Options, loss and entropy bonus of algorithms that learn a policy and a state value."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dqnspeed.algorithms.base import Algorithm
from dqnspeed.algorithms.learner import GradientLearner
from dqnspeed.buffers import RolloutBuffer
from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.schema import RunConfig, typed
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
    ent_coef_final: float = option("final value of ent_coef, reached linearly over optimizer.lr_decay_steps", ge=0)
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

    def annealed(self) -> Iterator[tuple[str, float, float]]:
        yield "entropy bonus", self.ent_coef, self.ent_coef_final

    def metrics(self, learner: GradientLearner) -> dict[str, float]:
        found = {"train/ent_coef": float(ent_coef(learner))}
        if isinstance(learner.buffer, RolloutBuffer):
            found["train/explained_variance"] = learner.buffer.explained_variance
        return found

    def check(self, run: RunConfig) -> None:
        super().check(run)
        if run.model.dueling:
            raise ConfigError(
                f"model.dueling=true: belongs to action values; algo={self.name} has a policy and a value."
            )


class ActorCriticLoss(NamedTuple):
    loss: Tensor  # all are scalars
    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor


def loss(
    learner: GradientLearner, observations: Tensor, actions: Tensor, returns: Tensor, weights: Tensor, ent_coef: Tensor
) -> ActorCriticLoss:
    """Loss of A2C and A3C (Mnih et al. 2016, section 4); the advantage is the return less the value of the state.

    Args:
        observations: ``(B, stack * C, ...)``; ``actions``: ``(B,) int64``; ``returns``: ``(B,)``.
        weights: ``(B,)`` of the transitions, whose sum is 1.
    """
    algo = typed(learner.run.algo, ActorCritic)
    with precision(learner.execution, learner.device):
        logits, values = learner.network.policy_and_value(observations)
    log_probs = torch.log_softmax(logits, dim=1)
    taken = log_probs.gather(1, actions[:, None])[:, 0]
    policy_loss = -((returns - values.detach()) * taken) @ weights
    value_loss = (values - returns) ** 2 @ weights
    entropy = entropy_of(log_probs) @ weights
    bonus = entropy_bonus(algo, entropy, ent_coef, logits.shape[1])
    return ActorCriticLoss(policy_loss + algo.vf_coef * value_loss - bonus, policy_loss, value_loss, entropy)


def ent_coef(learner: GradientLearner) -> Tensor:
    """Entropy coefficient ``() float32`` of the next update, annealed like the learning rate.

    A Python number that changes would make torch recompile.
    """
    algo = typed(learner.run.algo, ActorCritic)
    coef = annealed(learner.update_count + learner.skipped, algo.ent_coef, algo.ent_coef_final, learner.decay_updates)
    return coef.float() if isinstance(coef, Tensor) else torch.tensor(coef, dtype=torch.float32)


def entropy_bonus(algo: ActorCritic, entropy: Tensor, coef: Tensor, num_actions: int) -> Tensor:
    """Bonus of a mean ``entropy``, nats, which a loss subtracts.

    Entropy below ``algo.min_entropy`` times the entropy of random actions keeps the first coefficient.
    """
    bonus = coef * entropy
    if algo.min_entropy:
        bonus = bonus + (algo.ent_coef - coef) * entropy.clamp(max=algo.min_entropy * math.log(num_actions))
    return bonus


def entropy_of(log_probs: Tensor) -> Tensor:
    """Entropies ``(B,)``, nats, of policies given as ``(B, num_actions)`` log-probabilities."""
    return -(log_probs.exp() * log_probs).sum(dim=1)
