"""Environments that are stepped from the learner's process: in turn with it, or while it trains."""

from __future__ import annotations

from collections.abc import Callable

from dqnspeed.actors.stepper import Collected, EnvStepper
from dqnspeed.replay import UniformReplay


class SerialActor:
    """Environments and learner take turns."""

    def __init__(self, stepper: EnvStepper, replay: UniformReplay, epsilon_at: Callable[[int], float]):
        self._stepper, self._replay, self._epsilon_at = stepper, replay, epsilon_at
        self._agent_steps = 0
        self.seconds = stepper.seconds

    def begin(self) -> None:
        """Nothing to wake up: environments only move when told to."""

    def dispatch(self) -> None:
        """Called before the learner's updates; environments wait until they are done."""

    def collect(self, updates: int, wait: bool) -> Collected:
        """Act once in every environment and store the rows."""
        self._start()
        return self._finish()

    def close(self) -> None:
        self._stepper.close()

    def _start(self) -> None:
        self._stepper.start(self._epsilon_at(self._agent_steps))

    def _finish(self) -> Collected:
        epsilon = self._epsilon_at(self._agent_steps)
        rows, episodes = self._stepper.finish()
        self._replay.append(rows)
        steps = int(rows.transition.sum())
        self._agent_steps += steps
        return Collected(steps, episodes, epsilon)


class OverlapActor(SerialActor):
    """Actions are chosen before the updates, so that the environments step while the learner trains.

    The policy that acts is one round of updates older than with :class:`SerialActor`.
    """

    def dispatch(self) -> None:
        self._start()

    def collect(self, updates: int, wait: bool) -> Collected:
        return self._finish()
