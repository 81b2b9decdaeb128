"""PPO (Schulman et al. 2017) on rollouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dqnspeed.algorithms import actor_critic
from dqnspeed.algorithms.actor_critic import ActorCritic
from dqnspeed.algorithms.base import Learner
from dqnspeed.algorithms.data_sources import FromRollouts
from dqnspeed.algorithms.learner import GradientLearner
from dqnspeed.buffers import RolloutBatch, RolloutBuffer
from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.adaptive_kl import AdaptiveKL
from dqnspeed.execution.precision import gradients_off, precision


@register("algo", "ppo")
@dataclass(frozen=True)
class PPO(ActorCritic, FromRollouts):
    epochs: int = option("passes over each rollout", ge=1)  # type: ignore[misc]
    gae_lambda: float = option("lambda of generalised advantage estimation", ge=0, le=1)
    clip_range: float = option("clip range of the probability ratio", gt=0)
    clip_vloss: bool = option("clip the value function by clip_range, too")
    normalize_advantage: bool = option("normalise the advantages of each batch")
    target_kl: float | None = option(
        "early stopping: skip the rest of a rollout when the KL divergence from the behaviour policy exceeds 1.5 times "
        "this, in nats; null: never",
        gt=0,
    )
    adaptive_kl_target: float | None = option(
        "KL divergence from the behaviour policy, in nats, that the learning rate adapts to; null: no adaptation", gt=0
    )
    adaptive_kl_target_final: float | None = option(
        "final value of adaptive_kl_target, reached linearly over optimizer.lr_decay_steps", gt=0
    )
    correction: str = option(
        "vtrace: off-policy correction of returns for actors with old weights (IMPALA)", choices=("none", "vtrace")
    )

    @property
    def return_lambda(self) -> float:
        return self.gae_lambda

    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        return PPOLearner(self, run, spec, device)

    def annealed(self) -> Iterator[tuple[str, float, float]]:
        yield from super().annealed()
        if self.adaptive_kl_target is not None and self.adaptive_kl_target_final is not None:
            yield "KL target", self.adaptive_kl_target, self.adaptive_kl_target_final

    def check(self, run: RunConfig) -> None:
        super().check(run)
        both = self.adaptive_kl_target, self.adaptive_kl_target_final
        targets = ["null" if target is None else f"{target:g}" for target in both]
        if targets.count("null") == 1:
            raise ConfigError(
                f"algo.adaptive_kl_target={targets[0]}, algo.adaptive_kl_target_final={targets[1]}: both are numbers, "
                f"or both null."
            )
        alone = not run.parallelism.processes  # environments in worker processes wait for it as well
        rollout = run.total_envs * self.num_steps
        if self.adaptive_kl_target is not None and alone and self.updates_per_rollout(run) == 1:
            most = rollout // 2
            raise ConfigError(
                f"algo.adaptive_kl_target={targets[0]}: the one update of a rollout is measured before its step, when "
                f"the policy is that which acted; set algo.epochs above 1, or algo.batch_size to {most} at most."
            )
        if self.target_kl is not None and run.execution.graph:
            raise ConfigError(
                f"algo.target_kl={self.target_kl:g}: may leave updates out, and execution.graph=true launches each "
                f"as a whole. Use execution.graph=false, or algo.adaptive_kl_target."
            )
        if self.target_kl is not None and self.adaptive_kl_target is not None:
            raise ConfigError(
                f"algo.target_kl={self.target_kl:g}: leaves updates out, and algo.adaptive_kl_target needs all of a "
                f"rollout. Set algo.target_kl=null, or algo.adaptive_kl_target=null with adaptive_kl_target_final=null."
            )
        if self.normalize_advantage and self.batch_size == 1:
            raise ConfigError("algo.batch_size=1: algo.normalize_advantage=true needs at least 2.")


class PPOLoss(NamedTuple):
    loss: Tensor  # all are scalars
    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor
    approx_kl: Tensor
    clip_fraction: Tensor


class PPOLearner(GradientLearner):
    """Proximal policy optimisation with the clipped objective (equation 7), as usually implemented.

    Advantages are normalised in each batch, values may be clipped, and so is the norm of the gradient (Huang et al.
    2022, "The 37 implementation details of proximal policy optimization", details 1 to 11).
    """

    METRICS = (*PPOLoss._fields, "policy_lag")
    _adaptive_kl: AdaptiveKL | None = None

    def __init__(self, algo: PPO, run: RunConfig, spec: EnvSpec, device: torch.device):
        super().__init__(run, spec, device)
        self.algo = algo
        self._stopped_rollout = -1  # number of the last rollout that was stopped early
        if algo.adaptive_kl_target is not None and algo.adaptive_kl_target_final is not None:
            self._adaptive_kl = AdaptiveKL(
                algo.adaptive_kl_target, algo.adaptive_kl_target_final, algo.updates_per_rollout(run), device
            )

    def update(self, batch: RolloutBatch) -> None:
        """Take a gradient step on the clipped objective, unless ``target_kl`` is exceeded."""
        if batch.rollout == self._stopped_rollout:
            self.skipped += 1
            return
        loss: PPOLoss = self.backward(batch)
        if self.algo.target_kl is not None and loss.approx_kl.item() > 1.5 * self.algo.target_kl:
            self._stopped_rollout = batch.rollout  # early stopping, as in Stable-Baselines3
            self.skipped += 1
            return
        if self._adaptive_kl is not None:
            self._adaptive_kl.observe(loss.approx_kl.detach(), self.update_count, self.decay_updates)
        self.optimizer_step(*loss, batch.lags @ batch.weights)

    def learning_rate(self) -> float | Tensor:
        rate = super().learning_rate()
        return rate if self._adaptive_kl is None else rate * self._adaptive_kl.factor(self.on_device)

    def loss_inputs(self, batch: RolloutBatch) -> Mapping[str, Tensor]:
        return {
            "observations": batch.observations,
            "actions": batch.actions,
            "old_log_probs": batch.log_probs,
            "old_values": batch.values,
            "returns": batch.returns,
            "advantages": normalized(batch) if self.algo.normalize_advantage else batch.advantages,
            "weights": batch.weights,
            "ent_coef": actor_critic.ent_coef(self),
        }

    def loss(
        self,
        observations: Tensor,
        actions: Tensor,
        old_log_probs: Tensor,
        old_values: Tensor,
        returns: Tensor,
        advantages: Tensor,
        weights: Tensor,
        ent_coef: Tensor,
    ) -> PPOLoss:
        clip_range = self.algo.clip_range
        with precision(self.execution, self.device):
            logits, values = self.network.policy_and_value(observations)
        log_probs = torch.log_softmax(logits, dim=1)
        log_ratio = log_probs.gather(1, actions[:, None])[:, 0] - old_log_probs
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
        policy_loss = -torch.min(advantages * ratio, advantages * clipped) @ weights
        errors = (values - returns) ** 2
        if self.algo.clip_vloss:
            near = old_values + (values - old_values).clamp(-clip_range, clip_range)
            errors = torch.max(errors, (near - returns) ** 2)
        value_loss = errors @ weights
        entropy = actor_critic.entropy_of(log_probs) @ weights
        bonus = actor_critic.entropy_bonus(self.algo, entropy, ent_coef, logits.shape[1])
        loss = policy_loss + self.algo.vf_coef * value_loss / 2 - bonus
        approx_kl = (ratio - 1 - log_ratio) @ weights  # never negative (Schulman, "Approximating KL divergence")
        clip_fraction = ((ratio - 1).abs() > clip_range).float() @ weights
        return PPOLoss(loss, policy_loss, value_loss, entropy, approx_kl, clip_fraction)

    def evaluate_actions(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Values of observations and log-probabilities of actions under the current network, ``(2, K) float32``."""
        batch = self.optimization.to_device({"observations": observations, "actions": actions})
        with gradients_off(self.execution), precision(self.execution, self.device):
            logits, values = self.network.policy_and_value(batch["observations"])
        log_probs = torch.log_softmax(logits, dim=1).gather(1, batch["actions"][:, None])[:, 0]
        return torch.stack([values.detach().float(), log_probs.detach().float()])

    def attach(self, buffer: RolloutBuffer) -> None:
        super().attach(buffer)
        if self.algo.correction == "vtrace":
            buffer.evaluate_actions = self.evaluate_actions

    def state_dict(self) -> dict[str, Any]:
        adaptive_kl = {} if self._adaptive_kl is None else {"adaptive_kl": self._adaptive_kl.state}
        return {**super().state_dict(), **adaptive_kl, "skipped": self.skipped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.skipped = state["skipped"]
        if self._adaptive_kl is not None:
            self._adaptive_kl.load(torch.from_numpy(np.array(state["adaptive_kl"])))
        super().load_state_dict(state)


def normalized(batch: RolloutBatch) -> Tensor:
    """Advantages of the transitions of a batch, with mean 0 and standard deviation 1 (Huang et al. 2022, detail 7)."""
    advantages, weights = batch.advantages - batch.advantages @ batch.weights, batch.weights
    count = 1 / weights.max()
    deviation = (advantages**2 @ weights * count / (count - 1).clamp(min=1)).sqrt()
    return advantages / (deviation + 1e-8)
