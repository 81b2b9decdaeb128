"""The interface of actors, and of the options of ``parallelism``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from dqnspeed.actors.stepper import Collected
from dqnspeed.buffers import Buffer
from dqnspeed.config.options import ConfigError
from dqnspeed.config.registry import base_of
from dqnspeed.config.schema import ParallelismConfig, RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.networks.base import Network


class Actors(Protocol):
    """The interface that the training loop uses.

    Attributes:
        how: actions are chosen: ``graph``, or ``eager``, one operation after another.
    """

    @property
    def how(self) -> str: ...

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds spent in each part of acting."""

    def metrics(self) -> Mapping[str, float]:
        """What is reported of them beside ``seconds``."""

    def begin(self) -> Collected:
        """Start acting; returns which environments begin new games, all but those whose games were restored."""

    def dispatch(self) -> None:
        """Start a step of the environments, if they can step while the learner trains."""

    def collect(self, limit: float, wait: bool) -> Collected:
        """Store new experience in the memory.

        Args:
            limit: agent steps of the whole run at which actors must wait for the learner.
            wait: the learner has no update to do, so waiting is allowed.
        """

    def pause(self) -> Collected:
        """Stop every environment until :meth:`proceed`; returns what came in until then."""

    def state_dict(self) -> dict[str, Any]:
        """Everything the actors need to continue, by actor; only between :meth:`pause` and :meth:`proceed`."""

    def proceed(self) -> None:
        """Let the environments step again."""

    def close(self) -> None:
        """End every environment, thread and process."""


@dataclass(frozen=True)
class ActorArguments:
    """What every kind of actors is made with.

    Args:
        network: the learner's own, on ``device``; actors act with it and write into ``memory``.
        state: an :meth:`Actors.state_dict` to continue from; ``segment``: how often the run was resumed.
    """

    run: RunConfig
    spec: EnvSpec
    network: Network
    buffer: Buffer
    device: torch.device
    state: Mapping[str, Any] | None = None
    segment: int = 0


@base_of("parallelism")
@dataclass(frozen=True)
class Parallelism(ParallelismConfig):
    """An option of ``parallelism``: where experience comes from.

    ``processes`` and ``overlaps`` are for the rest of the configuration.
    """

    def make(self, arguments: ActorArguments) -> Actors:
        """The actors."""
        raise NotImplementedError

    def check_here(self) -> None:
        """Raise :class:`ConfigError` if something is missing here that it needs."""

    def check(self, run: RunConfig) -> None:
        super().check(run)
        ratio = self.samples_per_step
        if not run.has_replay and ratio not in (None, "free"):
            raise ConfigError(
                f"parallelism.samples_per_step={ratio}: belongs to algorithms with a replay; "
                f"algo={run.algo.name} has none."
            )
        if self.processes:
            number = isinstance(ratio, (int, float)) and math.isfinite(ratio) and ratio > 0
            if ratio != "free" and not number:
                raise ConfigError(f"parallelism.samples_per_step={ratio}: must be 'free' or a positive number.")
            if run.device == "mps":
                raise ConfigError(f"device=mps: parallelism={self.name} shares weights on cpu or cuda only.")
        elif ratio is not None:
            raise ConfigError(
                f"parallelism.samples_per_step={ratio}: belongs to parallelism=process; with "
                f"parallelism={self.name} it is algo.batch_size / algo.steps_per_update."
            )
        elif self.restart_actors:
            raise ConfigError(
                f"parallelism.restart_actors=true: belongs to parallelism=process; parallelism={self.name} has "
                f"no actors to replace."
            )
        elif self.num_actors != 1:
            raise ConfigError(
                f"parallelism.num_actors={self.num_actors}: belongs to parallelism=process; use num_envs for more "
                f"environments with parallelism={self.name}."
            )
