"""Learners: what is computed from experience, how actions follow from it, and how both are executed."""

from __future__ import annotations

from collections.abc import Callable

import torch

from dqnspeed.algorithms.actor_critic import PPO, ActorCritic
from dqnspeed.algorithms.dqn import DQN
from dqnspeed.algorithms.gradient import Learner, NotFiniteError, as_tensors
from dqnspeed.algorithms.pqn import PQN
from dqnspeed.algorithms.q_learning import QLearning
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.precision import check_execution
from dqnspeed.execution.threads import check_threads, set_threads
from dqnspeed.exploration.policy import EpsilonGreedy, Policy, epsilon_at, make_policy

_LEARNERS: dict[str, Callable[..., Learner]] = {
    "dqn": DQN,
    "a2c": ActorCritic,
    "a3c": ActorCritic,
    "ppo": PPO,
    "pqn": PQN,
    "q_learning": QLearning,
}


def make_learner(run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
    """The learner that ``algo`` names."""
    return _LEARNERS[run.algo.name](run, spec, device)


__all__ = [
    "DQN",
    "PPO",
    "PQN",
    "ActorCritic",
    "EpsilonGreedy",
    "Learner",
    "NotFiniteError",
    "Policy",
    "QLearning",
    "as_tensors",
    "check_execution",
    "check_threads",
    "epsilon_at",
    "make_learner",
    "make_policy",
    "set_threads",
]
