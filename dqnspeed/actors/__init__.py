"""Where experience comes from: in this process, overlapped with learning, or from actor processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import nn

from dqnspeed.actors.local import OverlapActor, SerialActor
from dqnspeed.actors.process import ProcessActors
from dqnspeed.actors.stepper import Collected, make_stepper
from dqnspeed.config import RunConfig
from dqnspeed.envs import ActorError, EnvSpec, make_vector_env
from dqnspeed.learners.policy import epsilon_at
from dqnspeed.replay import UniformReplay


class Actors(Protocol):
    """What the training loop asks of every parallelism."""

    seconds: dict[str, float]

    def begin(self) -> None:
        """Start the clock's first step."""

    def dispatch(self) -> None:
        """Set environments in motion where they can move while the learner trains."""

    def collect(self, limit: float, wait: bool) -> Collected:
        """Bring what was experienced into the replay.

        Args:
            limit: agent steps, counted over the whole run, beyond which actors must wait for the learner.
            wait: there is nothing to learn meanwhile.
        """

    def pause(self) -> Collected:
        """Bring every environment to rest until :meth:`proceed`; returns what came in until then."""

    def state_dict(self) -> dict[str, Any]:
        """Everything the actors need to go on, by actor; only between :meth:`pause` and :meth:`proceed`."""

    def proceed(self) -> None:
        """Let the environments move again."""

    def close(self) -> None:
        """End every environment, thread and process."""


def replay_lock(run: RunConfig) -> Any:
    """The lock that guards the replay's cursors, where actors in other processes write them."""
    return multiprocessing.get_context("spawn").Lock() if run.parallelism.name == "process" else None


def make_actors(
    run: RunConfig,
    spec: EnvSpec,
    network: nn.Module,
    replay: UniformReplay,
    lock: Any,
    device: torch.device,
    state: Mapping[str, Any] | None = None,
    stretch: int = 0,
) -> Actors:
    """The actors that ``parallelism`` names; they go on from ``state`` in the ``stretch``-th stretch of a run."""
    schedule: Callable[[int], float] = lambda step: epsilon_at(step, run.exploration)  # noqa: E731
    if run.parallelism.name == "process":
        return ProcessActors(run, spec, network, replay, lock, schedule, device, state, stretch)
    overlap = run.parallelism.name == "overlap"
    env = make_vector_env(run, overlap)
    try:
        stepper = make_stepper(run, spec, network, device, env, 0, state and state["0"], stretch)
    except BaseException:
        env.close()
        raise
    if not stepper.goes_on:
        replay.cut(0, run.num_envs)
    agent_steps = state["0"]["agent_steps"] if state else 0
    return (OverlapActor if overlap else SerialActor)(stepper, replay, schedule, agent_steps)


__all__ = ["ActorError", "Actors", "Collected", "make_actors", "replay_lock"]
