"""Environments that are stepped from the learner's process: in turn with it, or while it trains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dqnspeed.actors.stepper import Collected, EnvStepper
from dqnspeed.replay import UniformReplay


class SerialActor:
    """Environments and learner take turns."""

    def __init__(
        self, stepper: EnvStepper, replay: UniformReplay, epsilon_at: Callable[[int], float], agent_steps: int = 0
    ):
        self._stepper, self._replay, self._epsilon_at = stepper, replay, epsilon_at
        self._agent_steps = agent_steps
        self.seconds = stepper.seconds

    def begin(self) -> None:
        """Nothing to wake up: environments only move when told to."""

    def dispatch(self) -> None:
        """Called before the learner's updates; environments wait until they are done."""

    def collect(self, limit: float, wait: bool) -> Collected:
        """Act once in every environment and store the rows."""
        self._start()
        return self._finish()

    def pause(self) -> Collected:
        """Environments rest between two calls of :meth:`collect` anyway."""
        return Collected(epsilon=self._epsilon_at(self._agent_steps))

    def state_dict(self) -> dict[str, Any]:
        return {"0": {**self._stepper.state_dict(), "agent_steps": self._agent_steps}}

    def proceed(self) -> None:
        """Environments move with the next :meth:`collect`."""

    def close(self) -> None:
        self._stepper.close()

    def _start(self) -> None:
        self._stepper.start(self._epsilon_at(self._agent_steps))

    def _finish(self) -> Collected:
        epsilon = self._epsilon_at(self._agent_steps)
        rows, episodes = self._stepper.finish()
        self._replay.append(rows)
        episodes = [replace(episode, end_row=self._replay.rows(episode.env)) for episode in episodes]
        steps = int(rows.transition.sum())
        self._agent_steps += steps
        return Collected(steps, episodes, epsilon)


class OverlapActor(SerialActor):
    """Actions are chosen before the updates, so that the environments step while the learner trains.

    The policy that acts is one round of updates older than with :class:`SerialActor`.
    """

    def dispatch(self) -> None:
        self._start()

    def collect(self, limit: float, wait: bool) -> Collected:
        return self._finish()
