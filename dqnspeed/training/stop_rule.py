"""When a run ends."""

from __future__ import annotations

import logging
import math

from dqnspeed.config.schema import StopConfig
from dqnspeed.system.signals import StopSignals
from dqnspeed.training.progress import Progress

log = logging.getLogger(__name__)


class StopRule:
    """Conditions that end a run: solved, out of steps, out of time, a callback or a signal."""

    def __init__(self, stop: StopConfig, signals: StopSignals):
        self._bound = math.inf if stop.reward_bound is None else stop.reward_bound
        self.max_steps = math.inf if stop.max_steps is None else stop.max_steps
        self._max_seconds = math.inf if stop.max_minutes is None else stop.max_minutes * 60
        self._on, self._signals = stop.on, signals
        self._asked: str | None = None
        self.reason: str | None = None

    def end(self, reason: str) -> None:
        """End the run at the next check, for a ``reason`` of a callback."""
        self._asked = reason

    def cuts_short(self, progress: Progress) -> bool:
        """Whether to abandon an evaluation: after a signal, or when the time is over."""
        return self._signals.received is not None or progress.wall_time_s >= self._max_seconds

    def is_met(self, progress: Progress, eval_mean: float | None = None) -> bool:
        """Whether the run is over. Sets ``reason``, and marks the run as solved if it is.

        Args:
            eval_mean: mean return of the last evaluation, used instead of the training mean if ``stop.on=eval``.
        """
        if self._signals.received is not None:
            self.reason = self._signals.received.name
            log.info(
                "%s: the run stops and is saved; a second Ctrl-C ends it at once, without a checkpoint", self.reason
            )
        elif self._solved(progress, eval_mean):
            self.reason = "reward_bound"
            progress.solved()
        elif progress.agent_steps >= self.max_steps:
            self.reason = "max_steps"
        elif progress.wall_time_s >= self._max_seconds:
            self.reason = "max_minutes"
        elif self._asked is not None:
            self.reason = self._asked
        return self.reason is not None

    def _solved(self, progress: Progress, eval_mean: float | None) -> bool:
        if self._on == "eval":
            return eval_mean is not None and self._bound <= eval_mean < math.inf
        return progress.returns.full and self._bound <= progress.returns.mean < math.inf
