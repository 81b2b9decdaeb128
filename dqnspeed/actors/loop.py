"""The loop of an actor, wherever it runs, and what it and the learner tell each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from dqnspeed.actors.stepper import EnvStepper
from dqnspeed.algorithms import epsilon_at
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import Episode
from dqnspeed.memory import Rows


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


def act(run: RunConfig, stepper: EnvStepper, channel: Channel) -> None:
    """Act until the learner says stop."""
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
