"""Where experience comes from: in this process, overlapped with learning, or from actor processes."""

from __future__ import annotations

import dataclasses
import multiprocessing
from collections.abc import Mapping
from typing import Any

import torch

from dqnspeed.actors.base import Actors, Parallelism
from dqnspeed.actors.stepper import Collected
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import ActorError, EnvSpec
from dqnspeed.execution.threads import share_of_cores
from dqnspeed.memory import Memory
from dqnspeed.networks.base import Network
from dqnspeed.system import machine


def memory_lock(run: RunConfig) -> Any:
    """The lock of the memory's cursors, if actors in other processes write them."""
    return multiprocessing.get_context("spawn").Lock() if run.parallelism.processes else None


def make_actors(
    run: RunConfig,
    spec: EnvSpec,
    network: Network,
    memory: Memory,
    lock: Any,
    device: torch.device,
    state: Mapping[str, Any] | None = None,
    segment: int = 0,
) -> Actors:
    """The actors that ``parallelism`` names; they continue from ``state`` in the ``segment``-th segment of a run."""
    env_threads = share_of_cores(run, machine.cores()).env_threads
    parallelism = dataclasses.replace(run.parallelism, env_threads=env_threads)
    assert isinstance(parallelism, Parallelism)
    run = dataclasses.replace(run, parallelism=parallelism)
    return parallelism.make(run, spec, network, memory, lock, device, state, segment)


__all__ = ["ActorError", "Actors", "Collected", "make_actors", "memory_lock"]
