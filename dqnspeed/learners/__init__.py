"""Learners: what is computed from experience, how actions follow from it, and how both are executed."""

from dqnspeed.learners.dqn import DQN, LearnerStats, NotFiniteError
from dqnspeed.learners.execution import check_execution, set_threads
from dqnspeed.learners.policy import EpsilonGreedy, epsilon_at

__all__ = [
    "DQN",
    "EpsilonGreedy",
    "LearnerStats",
    "NotFiniteError",
    "check_execution",
    "epsilon_at",
    "set_threads",
]
