"""Where experience comes from: in this process, overlapped with learning, or from actor processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from dqnspeed.actors.local import OverlapActor, SerialActor
from dqnspeed.actors.process import ProcessActors
from dqnspeed.actors.stepper import Collected, EnvStepper, env_seeds
from dqnspeed.config import RunConfig
from dqnspeed.envs import ActorError, EnvSpec, make_vector_env
from dqnspeed.learners.policy import EpsilonGreedy, epsilon_at
from dqnspeed.replay import UniformReplay


class Actors(Protocol):
    """What the training loop asks of every parallelism."""

    seconds: dict[str, float]

    def begin(self) -> None:
        """Start the clock's first step."""

    def dispatch(self) -> None:
        """Set environments in motion where they can move while the learner trains."""

    def collect(self, updates: int, wait: bool) -> Collected:
        """Bring what was experienced into the replay; ``wait`` when there is nothing to learn meanwhile."""

    def close(self) -> None:
        """End every environment, thread and process."""


def replay_lock(run: RunConfig) -> Any:
    """The lock that guards the replay's cursors, where actors in other processes write them."""
    return multiprocessing.get_context("spawn").Lock() if run.parallelism.name == "process" else None


def make_actors(
    run: RunConfig, spec: EnvSpec, network: nn.Module, replay: UniformReplay, lock: Any, device: torch.device
) -> Actors:
    """The actors that ``parallelism`` names."""
    schedule: Callable[[int], float] = lambda step: epsilon_at(step, run.exploration)  # noqa: E731
    if run.parallelism.name == "process":
        return ProcessActors(run, spec, network, replay, lock, schedule, device)
    overlap = run.parallelism.name == "overlap"
    rng = np.random.default_rng([run.seed, 0, 1])
    policy = EpsilonGreedy(network, spec.num_actions, run.execution, device, rng)
    env = make_vector_env(run, overlap)
    try:
        stepper = EnvStepper(env, spec, policy, env_seeds(run.seed, 0, run.num_envs))
    except BaseException:
        env.close()
        raise
    return (OverlapActor if overlap else SerialActor)(stepper, replay, schedule)


__all__ = ["ActorError", "Actors", "Collected", "make_actors", "replay_lock"]
