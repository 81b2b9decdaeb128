"""When to update and when to stop."""

from __future__ import annotations

import math
import time
from typing import Protocol

from dqnspeed.config import RunConfig, StopConfig
from dqnspeed.signals import StopSignals
from dqnspeed.summary import Progress

SIGNAL_GRACE_S = 0.2


class UpdateSchedule(Protocol):
    def due(self, agent_steps: int, updates: int) -> int:
        """Updates to do now, given the agent steps collected and the updates done."""


class RatioSchedule:
    """One update for ``steps_per_update`` agent steps, from ``learning_starts`` on."""

    def __init__(self, steps_per_update: float, learning_starts: int):
        self._steps_per_update, self._learning_starts = steps_per_update, learning_starts

    def due(self, agent_steps: int, updates: int) -> int:
        if agent_steps < self._learning_starts:
            return 0
        owed = math.floor((agent_steps - self._learning_starts) / self._steps_per_update) + 1 - updates
        return max(owed, 0)


class FreeSchedule:
    """One update after another from ``learning_starts`` on, however fast steps come in."""

    def __init__(self, learning_starts: int):
        self._learning_starts = learning_starts

    def due(self, agent_steps: int, updates: int) -> int:
        return int(agent_steps >= self._learning_starts)


def make_schedule(run: RunConfig) -> UpdateSchedule:
    """The schedule that ``algo`` and ``parallelism.replay_ratio`` ask for."""
    if run.replay_ratio is None:
        return FreeSchedule(run.algo.learning_starts)
    return RatioSchedule(run.algo.batch_size / run.replay_ratio, run.algo.learning_starts)


class StopRule:
    """Ends a run: solved, out of steps, out of time, or told to stop."""

    def __init__(self, stop: StopConfig, signals: StopSignals):
        self._bound = math.inf if stop.reward_bound is None else stop.reward_bound
        self._max_steps = math.inf if stop.max_steps is None else stop.max_steps
        self._max_seconds = math.inf if stop.max_minutes is None else stop.max_minutes * 60
        self._signals = signals
        self.reason: str | None = None

    def by_signal(self) -> bool:
        """Whether a signal asked for the end; one sent to the whole group may reach us a moment after the actors."""
        time.sleep(SIGNAL_GRACE_S)
        if self._signals.received is not None:
            self.reason = self._signals.received.name
        return self._signals.received is not None

    def holds(self, progress: Progress) -> bool:
        """Whether the run is over; ``reason`` then says why."""
        if self._signals.received is not None:
            self.reason = self._signals.received.name
        elif progress.returns.full and progress.returns.mean >= self._bound:
            self.reason = "reward_bound"
            progress.solved()
        elif progress.agent_steps >= self._max_steps:
            self.reason = "max_steps"
        elif progress.clock.now() >= self._max_seconds:
            self.reason = "max_minutes"
        return self.reason is not None
