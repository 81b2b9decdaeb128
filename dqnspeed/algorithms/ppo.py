"""PPO (Schulman et al. 2017) on rollouts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnspeed.algorithms.actor_critic import ActorCritic, PolicyLearner, entropy_of
from dqnspeed.algorithms.base import Learner
from dqnspeed.algorithms.data_sources import FromRollouts
from dqnspeed.algorithms.learner import Loss
from dqnspeed.buffers import RolloutBatch
from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.adaptive_kl import Steering
from dqnspeed.execution.precision import gradients_off, precision


@register("algo", "ppo")
@dataclass(frozen=True)
class PPO(ActorCritic, FromRollouts):
    clip_range: float = option("how far the probability ratio may move", gt=0)
    clip_vloss: bool = option("clip the value function as the policy is")
    normalize_advantage: bool = option("normalise the advantages of each batch")
    target_kl: float | None = option(
        "divergence from the policy that acted, nats; a batch that shows 1.5 times as much is the rollout's last, and "
        "is not learnt from; null: none is",
        gt=0,
    )
    adaptive_kl_target: float | None = option(
        "divergence from the policy that acted, nats, which the learning rate is steered by; null: it is not", gt=0
    )
    adaptive_kl_target_final: float | None = option(
        "the same at last, which it reaches in a straight line as the learning rate does", gt=0
    )
    correction: str = option(
        "vtrace: correct returns for actors that lag behind the learner (IMPALA)", choices=("none", "vtrace")
    )

    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        return PPOLearner(self, run, spec, device)

    def annealed(self) -> Iterator[tuple[str, float, float]]:
        yield from super().annealed()
        if self.adaptive_kl_target is not None and self.adaptive_kl_target_final is not None:
            yield "target of the KL divergence", self.adaptive_kl_target, self.adaptive_kl_target_final

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
        if self.normalize_advantage and self.batch_size == 1:
            raise ConfigError("algo.batch_size=1: algo.normalize_advantage=true needs at least 2.")


class PPOLearner(PolicyLearner):
    """Proximal policy optimisation with the clipped objective (equation 7), as usually implemented.

    Advantages are normalised in each batch, the value function may be clipped as the policy is, and the gradient's
    norm is (Huang et al. 2022, "The 37 implementation details of proximal policy optimization", details 1 to 11).
    """

    STATS = (
        "train/loss", "train/policy_loss", "train/value_loss", "train/entropy", "train/approx_kl",
        "train/clip_fraction",
    )  # fmt: skip

    def __init__(self, algo: PPO, run: RunConfig, spec: EnvSpec, device: torch.device):
        super().__init__(algo, run, spec, device)
        self._clip, self._clip_vloss, self._normalize = algo.clip_range, algo.clip_vloss, algo.normalize_advantage
        self._corrects = algo.correction == "vtrace"
        self._most_kl = math.inf if algo.target_kl is None else 1.5 * algo.target_kl
        self._rollout, self._left = -1, -1  # that it learns from now, and the last one that it learns no more from
        self._steering: Steering | None = None
        if algo.adaptive_kl_target is not None and algo.adaptive_kl_target_final is not None:
            self._steering = Steering(
                algo.adaptive_kl_target, algo.adaptive_kl_target_final, self._decay_updates,
                algo.updates_per_rollout(run), device,
            )  # fmt: skip

    def attach(self, buffer: Any) -> None:
        super().attach(buffer)
        if self._corrects:
            buffer.evaluate_actions = self.judge

    def step(self, batch: RolloutBatch) -> Loss | None:
        if batch.rollout == self._left:
            return None
        self._rollout = batch.rollout
        return super().step(batch)

    def see(self, now: int | Tensor, numbers: Tensor) -> bool:
        divergence = numbers[self.STATS.index("train/approx_kl")]
        if self._most_kl < math.inf and divergence.item() > self._most_kl:
            self._left = self._rollout
            return False
        if self._steering is not None:
            self._steering.see(divergence, now.view(()) if isinstance(now, Tensor) else now)
        return True

    def learning_rate(self, now: int | Tensor) -> float | Tensor:
        rate = super().learning_rate(now)
        return rate if self._steering is None else rate * self._steering.factor(self.on_device)

    def state_dict(self) -> dict[str, Any]:
        steering = {} if self._steering is None else {"steering": self._steering.state}
        return {**super().state_dict(), **steering}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if self._steering is not None:
            self._steering.load(torch.from_numpy(np.array(state["steering"])))

    def judge(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Values of observations and log-probabilities of actions, ``(2, K) float32`` on the device, by the network as
        it is now."""
        batch = self._to_device({"observations": observations, "actions": actions})
        with gradients_off(self._execution), precision(self._execution, self.device):
            logits, values = self.network.policy_and_value(batch["observations"])
        log_probs = torch.log_softmax(logits, dim=1).gather(1, batch["actions"][:, None])[:, 0]
        return torch.stack([values.detach().float(), log_probs.detach().float()])

    def loss_inputs(self, batch: RolloutBatch) -> Mapping[str, np.ndarray | Tensor]:
        advantages, weights = batch.advantages, batch.weights
        if self._normalize:
            advantages = advantages - advantages @ weights
            count = 1 / weights.max()
            deviation = (advantages**2 @ weights * count / (count - 1).clamp(min=1)).sqrt()
            advantages = advantages / (deviation + 1e-8)
        return {
            "observations": batch.observations,
            "actions": batch.actions,
            "old_log_probs": batch.log_probs,
            "old_values": batch.values,
            "returns": batch.returns,
            "advantages": advantages,
            "weights": weights,
            "ent_coef": self._ent_coef(),
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
    ) -> Loss:
        with precision(self._execution, self.device):
            logits, values = self.network.policy_and_value(observations)
        log_probs = torch.log_softmax(logits, dim=1)
        log_ratio = log_probs.gather(1, actions[:, None])[:, 0] - old_log_probs
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - self._clip, 1 + self._clip)
        policy_loss = -torch.min(advantages * ratio, advantages * clipped) @ weights
        errors = (values - returns) ** 2
        if self._clip_vloss:
            near = old_values + (values - old_values).clamp(-self._clip, self._clip)
            errors = torch.max(errors, (near - returns) ** 2)
        value_loss = errors @ weights
        entropy = entropy_of(log_probs) @ weights
        loss = policy_loss + self._vf_coef * value_loss / 2 - self._bonus(entropy, ent_coef)
        approx_kl = (ratio - 1 - log_ratio) @ weights  # never negative (Schulman, "Approximating KL divergence")
        clip_fraction = ((ratio - 1).abs() > self._clip).float() @ weights
        return Loss((loss, policy_loss, value_loss, entropy, approx_kl, clip_fraction))
