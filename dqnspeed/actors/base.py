"""Interface of actors, which collect experience, and of the options of ``parallelism``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from dqnspeed.buffers import Buffer
from dqnspeed.config.options import ConfigError
from dqnspeed.config.registry import base_of
from dqnspeed.config.schema import ParallelismConfig, RunConfig
from dqnspeed.envs import EnvSpec, Episode
from dqnspeed.networks.base import Network


@dataclass(frozen=True)
class NewGames:
    """Event: unfinished games of the environments ``envs`` are lost, and new games begin.

    With ``begun=False`` the new games begin later, when the lost actor of these environments has been replaced.
    """

    envs: range
    begun: bool = True


@dataclass(slots=True)
class Collected:
    """Steps and events since the last call."""

    agent_steps: int = 0
    episodes: list[Episode | NewGames] = field(default_factory=list)  # in the order in which they arrived
    epsilon: float = 1.0
    lost: list[str] = field(default_factory=list)  # for each actor that was replaced, the reason


class Actors(Protocol):
    """Environments with a policy, as the training loop uses them.

    Attributes:
        how: how actions are chosen: ``graph``, or ``eager``, one operation after another.
    """

    @property
    def how(self) -> str: ...

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds spent in each part of acting, all actors together."""

    def metrics(self) -> Mapping[str, float]:
        """Metrics for a report, beside ``seconds``."""

    def start(self) -> Collected:
        """Start acting; returns :class:`NewGames` for all environments but those with restored games."""

    def send(self) -> None:
        """Start a step of the environments, if they can step while the learner trains."""

    def collect(self, limit: float, wait: bool) -> Collected:
        """Store new experience in the buffer.

        Args:
            limit: agent steps of the whole run at which actors must wait for the learner.
            wait: whether the call may wait for experience, as the learner has no update to do.
        """

    def pause(self) -> Collected:
        """Stop every environment until :meth:`resume`; returns everything collected until then."""

    def state_dict(self) -> dict[str, Any]:
        """State to continue from, by actor; only between :meth:`pause` and :meth:`resume`."""

    def resume(self) -> None:
        """Let the environments step again."""

    def close(self) -> None:
        """End every environment, thread and process."""


@dataclass(frozen=True)
class ActorArguments:
    """Arguments of every kind of actors.

    Args:
        network: network of the learner, on ``device``.
        buffer: buffer that actors write into.
        state: :meth:`Actors.state_dict` to continue from.
        segment: number of times the run was resumed.
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
    """Option of ``parallelism``: a kind of actors. Its properties tell the rest of the program how they act."""

    def make(self, arguments: ActorArguments) -> Actors:
        """Make the actors."""
        raise NotImplementedError

    def check_here(self) -> None:
        """Raise :class:`ConfigError` if something is missing on this machine."""

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
            return
        for key, usual, advice in (
            ("samples_per_step", None, "algo.batch_size and algo.steps_per_update set it"),
            ("restart_actors", False, "there is no actor process to replace"),
            ("num_actors", 1, "num_envs sets the number of environments"),
        ):
            if (value := getattr(self, key)) != usual:
                raise ConfigError(
                    f"parallelism.{key}={str(value).lower()}: belongs to parallelism=process. With "
                    f"parallelism={self.name} {advice}."
                )
