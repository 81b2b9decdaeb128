"""Where experience comes from: in this process, overlapped with learning, or from actor processes."""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import nn

from dqnspeed.actors.local import AlternatingActor, OverlapActor, SerialActor
from dqnspeed.actors.process import ProcessActors
from dqnspeed.actors.stepper import Collected, EnvStepper, env_seeds, make_stepper
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import ActorError, EnvSpec, make_vector_env
from dqnspeed.execution.threads import share_of_cores
from dqnspeed.exploration.policy import epsilon_at
from dqnspeed.memory import Memory
from dqnspeed.system import machine


class Actors(Protocol):
    """What the training loop asks of every parallelism."""

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds spent in each part of acting."""

    def begin(self) -> None:
        """Start the clock's first step."""

    def dispatch(self) -> None:
        """Set environments in motion where they can move while the learner trains."""

    def collect(self, limit: float, wait: bool) -> Collected:
        """Bring what was experienced into the memory.

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


def memory_lock(run: RunConfig) -> Any:
    """The lock that guards the memory's cursors, where actors in other processes write them."""
    return multiprocessing.get_context("spawn").Lock() if run.parallelism.name == "process" else None


def make_actors(
    run: RunConfig,
    spec: EnvSpec,
    network: nn.Module,
    memory: Memory,
    lock: Any,
    device: torch.device,
    state: Mapping[str, Any] | None = None,
    segment: int = 0,
) -> Actors:
    """The actors that ``parallelism`` names; they go on from ``state`` in the ``segment``-th segment of a run."""
    schedule = functools.partial(epsilon_at, run=run)
    env_threads = share_of_cores(run, machine.cores()).env_threads
    run = dataclasses.replace(run, parallelism=dataclasses.replace(run.parallelism, env_threads=env_threads))
    if run.parallelism.name == "process":
        return ProcessActors(run, spec, network, memory, lock, schedule, device, state, segment)
    overlap = run.parallelism.name == "overlap"
    count = 2 if overlap and not run.has_replay else 1
    share = dataclasses.replace(run, num_envs=run.num_envs // count)
    groups: list[EnvStepper] = []
    try:
        for i in range(count):
            seeds = env_seeds(run.seed, i, share.num_envs, segment)
            env = make_vector_env(share, overlap, seeds=seeds if overlap else None)
            groups.append(make_stepper(share, spec, network, device, env, i, state and state[str(i)], segment))
            if not groups[i].games_restored:
                memory.cut(i * share.num_envs, share.num_envs)
    except BaseException:
        for group in groups:
            group.close()
        raise
    kind = AlternatingActor if count == 2 else OverlapActor if overlap else SerialActor
    return kind(groups, memory, schedule, state["0"]["agent_steps"] if state else 0)


__all__ = ["ActorError", "Actors", "Collected", "make_actors", "memory_lock"]
