"""The loop of an actor, wherever it runs, and what it and the learner tell each other."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch

from dqnspeed.actors.stepper import EnvStepper, env_seeds, make_stepper
from dqnspeed.algorithms import epsilon_at
from dqnspeed.buffers import Rows
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import ActorError, EnvSpec, Episode, make_vector_env
from dqnspeed.execution.graph import CaptureError
from dqnspeed.networks.base import Network
from dqnspeed.system import seeding


@dataclass(frozen=True)
class Job:
    """The arguments of every actor; ``state`` of :class:`Paused` when the run was saved, or ``None``."""

    run: RunConfig
    spec: EnvSpec
    index: int
    state: Any
    segment: int


@dataclass(frozen=True)
class Ready:
    """The actor's environments are made; ``games_restored``: with their saved games. ``how`` it acts."""

    games_restored: bool
    how: str


@dataclass(frozen=True)
class Paused:
    """All that the actor needs to continue; it waits until pause ``number`` is over."""

    number: int
    state: dict[str, Any]


class Orders(NamedTuple):
    """What the learner asks of an actor."""

    stop: bool
    pause: int  # the number of this pause, 0 while actors may act
    steps: bool  # whether it may do a step, and is not too far ahead of the learner
    total: int  # agent steps of all actors together


class Channel(Protocol):
    """The way between an actor and the learner, as the actor sees it: pipes and shared memory, or a network."""

    def send(self, message: Ready | Paused) -> None:
        """Tell the learner."""

    def orders(self) -> Orders:
        """The newest orders, asked for before each step; a sign of life."""

    def wait(self) -> None:
        """Wait a moment, or until there are new orders."""

    def refresh(self) -> None:
        """Load newer weights, if the network is not the learner's own."""

    def deliver(self, rows: Rows, episodes: list[Episode], seconds: Mapping[str, float]) -> None:
        """Hand over a step and the games that it ended; ``seconds`` spent in each part of acting until now."""


def work(job: Job, network: Network, device: torch.device, channel: Channel) -> None:
    """Make the environments of an actor, and act in them until the learner says stop."""
    run, index = job.run, job.index
    seeding.seed_everything(env_seeds(run.seed, index, 1, job.segment)[0])
    env, actors = make_vector_env(run), run.parallelism.num_actors
    stepper = make_stepper(run, job.spec, network, device, env, index, job.state, job.segment, actors)
    with contextlib.closing(stepper):
        _act(run, stepper, channel)


def complaint(error: BaseException) -> str:
    """The text that tells the learner of an actor's error."""
    return str(error) if isinstance(error, (ActorError, ConfigError, CaptureError)) else traceback.format_exc()


def _act(run: RunConfig, stepper: EnvStepper, channel: Channel) -> None:
    channel.send(Ready(stepper.games_restored, stepper.how))
    paused = 0
    while not (orders := channel.orders()).stop:
        if orders.pause not in (0, paused):  # the next pause may start before this actor looks again
            channel.send(Paused(orders.pause, stepper.state_dict()))
            paused = orders.pause
        if orders.pause or not orders.steps:
            channel.wait()
            continue
        channel.refresh()
        stepper.start(epsilon_at(orders.total, run))
        channel.deliver(*stepper.finish(), stepper.seconds)
