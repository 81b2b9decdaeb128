"""Learners: what is computed from experience, how actions follow from it, and how both are executed."""

from __future__ import annotations

from collections.abc import Callable

import torch

from dqnspeed.config import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.learners.actor_critic import PPO, ActorCritic
from dqnspeed.learners.dqn import DQN
from dqnspeed.learners.execution import check_execution, check_threads, set_threads
from dqnspeed.learners.gradient import Learner, NotFiniteError, as_tensors
from dqnspeed.learners.policy import EpsilonGreedy, Policy, epsilon_at, make_policy
from dqnspeed.learners.pqn import PQN
from dqnspeed.learners.q_learning import QLearning

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
