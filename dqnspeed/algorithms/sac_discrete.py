"""Soft actor-critic for discrete actions (Christodoulou 2019): expectations over all actions in place of draws.

Arguments of the functions: ``log_probs`` ``(B, A)`` of the policy, finite as log_softmax gives them; ``q1`` and ``q2``
``(B, A)``, the action values of two critics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dqnspeed.algorithms.base import Learner
from dqnspeed.algorithms.data_sources import FromReplay
from dqnspeed.algorithms.learner import GradientLearner
from dqnspeed.algorithms.target_network import TargetNetwork
from dqnspeed.buffers import Batch, Transitions
from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.precision import gradients_off, precision
from dqnspeed.exploration.policy import Policy
from dqnspeed.exploration.sampling import CategoricalPolicy
from dqnspeed.networks.base import Model, Network
from dqnspeed.networks.heads import TorsoNetwork, head


def soft_state_value(log_probs: Tensor, q1: Tensor, q2: Tensor, temperature: Tensor) -> Tensor:
    """``sum_a pi(a) (min(q1(a), q2(a)) - temperature * log pi(a))``, ``(B,)`` (equation 10)."""
    return (log_probs.exp() * (torch.minimum(q1, q2) - temperature * log_probs)).sum(dim=1)


def critic_target(
    rewards: Tensor, discounts: Tensor, log_probs: Tensor, q1: Tensor, q2: Tensor, temperature: Tensor
) -> Tensor:
    """Target ``(B,)`` of both critics for the value of the action taken, without a gradient (algorithm 1).

    Beyond the paper, ``algo.n_step`` may be above 1; the entropies of the steps in between are left out then.

    Args:
        rewards: ``(B,)``; ``discounts``: ``(B,)``, 0 where the episode terminated.
        log_probs, q1, q2: of the next observations, ``q1`` and ``q2`` by the target critics.
    """
    return (rewards + discounts * soft_state_value(log_probs, q1, q2, temperature)).detach()


def critic_loss(q: Tensor, actions: Tensor, targets: Tensor) -> Tensor:
    """Half the squared error of one critic's ``q`` of ``actions`` ``(B,) int64``, ``(B,)`` (algorithm 1)."""
    return 0.5 * (q.gather(1, actions[:, None])[:, 0] - targets).square()


def policy_loss(log_probs: Tensor, q1: Tensor, q2: Tensor, temperature: Tensor) -> Tensor:
    """``sum_a pi(a) (temperature * log pi(a) - min(q1(a), q2(a)))``, ``(B,)``, to the policy alone (equation 12)."""
    return -soft_state_value(log_probs, q1.detach(), q2.detach(), temperature.detach())


def temperature_loss(log_probs: Tensor, log_temperature: Tensor, target_entropy: float) -> Tensor:
    """``sum_a pi(a) (-temperature * (log pi(a) + target_entropy))``, ``(B,)``, to the temperature alone (equation 11).

    Args:
        log_temperature: ``()``, learnt in place of the temperature, which so stays above 0.
        target_entropy: in nats; the temperature falls while the policy's is above it.
    """
    log_probs = log_probs.detach()
    return (log_probs.exp() * (-log_temperature.exp() * (log_probs + target_entropy))).sum(dim=1)


@register("algo", "sac_discrete")
@dataclass(frozen=True)
class SACDiscrete(FromReplay):
    """Christodoulou (2019), algorithm 1."""

    uses = ("model", "optimizer", "replay")
    outputs = "logits of the policy"

    target_update_every: int = option("updates between copies into the target network", ge=1)
    target_entropy: float = option("share of the entropy of random actions that the policy keeps", ge=0, le=1)
    temperature: float = option("temperature at first, which then follows the entropy", gt=0)

    def network(self, run: RunConfig, spec: EnvSpec) -> Network:
        return PolicyCriticsNetwork(self, run, spec)

    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        return SACDiscreteLearner(self, run, spec, device)

    def policy(
        self, run: RunConfig, spec: EnvSpec, network: Network, device: torch.device, rng: np.random.Generator
    ) -> Policy:
        return PolicySampler(network, run.execution, device, rng)

    def check(self, run: RunConfig) -> None:
        super().check(run)
        if run.model.dueling:
            raise ConfigError(f"model.dueling=true: algo={self.name} has critics with one stream each.")


class PolicyCriticsNetwork(TorsoNetwork):
    """A policy and two critics, which share no layer. A call gives the logits of the policy."""

    def __init__(self, algo: SACDiscrete, run: RunConfig, spec: EnvSpec):
        super().__init__(run, spec)
        norm = run.model.layer_norm
        self.policy = head(self.units, spec.num_actions, norm)
        torsos = [typed(run.model, Model).torso(spec.observation_shape)[0] for _ in range(2)]
        self.critics = nn.ModuleList(nn.Sequential(t, head(self.units, spec.num_actions, norm)) for t in torsos)
        self.log_temperature = nn.Parameter(torch.tensor(math.log(algo.temperature)))

    def forward(self, observations: Tensor) -> Tensor:
        logits: Tensor = self.policy(self.features(self.preprocess(observations)))
        return logits

    def action_values(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """``(B, num_actions) float32`` by each critic."""
        seen = self.preprocess(observations)
        q1, q2 = (critic(seen) for critic in self.critics)
        return q1, q2


class PolicySampler(CategoricalPolicy):
    """Draws from the policy without a call of the critics. Values are NaN, as a replay keeps none."""

    def output(self, observations: Tensor) -> Tensor:
        log_probs = torch.log_softmax(self.network(observations), dim=1)
        return torch.column_stack([log_probs, torch.full_like(log_probs[:, 0], math.nan)])


class SACLoss(NamedTuple):
    loss: Tensor  # () like all but errors
    q_mean: Tensor
    policy_loss: Tensor
    entropy: Tensor
    temperature: Tensor
    errors: Tensor  # (B,)


class SACDiscreteLearner(GradientLearner):
    """Algorithm 1 of Christodoulou (2019), with one step on the sum of all losses.

    Each loss reaches only its own parameters. The step equals a step on each loss, unless ``algo.max_grad_norm`` clips
    the common gradient.
    """

    METRICS = SACLoss._fields[:-1]
    network: PolicyCriticsNetwork
    target: TargetNetwork

    def __init__(self, algo: SACDiscrete, run: RunConfig, spec: EnvSpec, device: torch.device):
        super().__init__(run, spec, device)
        self.target = TargetNetwork(self.network, algo.target_update_every, run.execution.no_grad)
        self._target_entropy = algo.target_entropy * math.log(spec.num_actions)

    def update(self, batch: Batch) -> None:
        """Step critics, policy and temperature, report the TD errors, and sync the target network if it is due."""
        loss: SACLoss = self.backward(batch)
        self.optimizer_step(*loss[:-1])
        if batch.update_priorities is not None:
            batch.update_priorities(loss.errors)
        if self.target.is_due(self.updates):
            self.target.sync()

    def loss_inputs(self, batch: Batch) -> Mapping[str, Tensor]:
        return batch.arrays()

    def loss(self, weights: Tensor | None = None, **transitions: Tensor) -> SACLoss:
        batch, network = Transitions(**transitions), self.network
        target: Any = self.target.network
        temperature = network.log_temperature.exp()
        with precision(self.execution, self.device):
            q1, q2 = network.action_values(batch.observations)
            log_probs = torch.log_softmax(network(batch.observations), dim=1)
            with gradients_off(self.execution):
                next_log_probs = torch.log_softmax(network(batch.next_observations), dim=1)
                next_q1, next_q2 = target.action_values(batch.next_observations)
                targets = critic_target(batch.rewards, batch.discounts, next_log_probs, next_q1, next_q2, temperature)
        critics = critic_loss(q1, batch.actions, targets) + critic_loss(q2, batch.actions, targets)
        critics = critics.mean() if weights is None else (weights * critics).mean()
        policy = policy_loss(log_probs, q1, q2, temperature).mean()
        heat = temperature_loss(log_probs, network.log_temperature, self._target_entropy).mean()
        q_taken = q1.detach().gather(1, batch.actions[:, None])[:, 0]
        entropy = -(log_probs.detach().exp() * log_probs.detach()).sum(dim=1).mean()
        errors = (q_taken - targets).abs()
        return SACLoss(critics + policy + heat, q_taken.mean(), policy.detach(), entropy, temperature.detach(), errors)
