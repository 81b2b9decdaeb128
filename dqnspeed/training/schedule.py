"""When to update and when to stop."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from dqnspeed.algorithms import algorithm_of
from dqnspeed.buffers import Buffer
from dqnspeed.buffers.ordered import OrderedBuffer
from dqnspeed.config.schema import RunConfig, StopConfig, typed
from dqnspeed.exploration.base import Exploration
from dqnspeed.system.signals import StopSignals
from dqnspeed.training.progress import Progress


@dataclass(frozen=True)
class LearningStart:
    """Agent steps and updates at which learning starts, or starts again after a resume."""

    steps: int
    updates: int


class RatioSchedule:
    """One update per ``steps_per_update`` agent steps from ``start`` on.

    Args:
        lookahead: agent steps that the actors may be ahead of the learner.
    """

    def __init__(self, steps_per_update: float, start: LearningStart, lookahead: float = 0):
        self._steps_per_update, self._start, self._lookahead = steps_per_update, start, lookahead

    def due(self, agent_steps: int, updates: int) -> int:
        """Updates to do now, given the agent steps collected and the updates done."""
        collected = agent_steps - self._start.steps
        if collected < 0:
            return 0
        due = math.floor(collected / self._steps_per_update) + 1 - (updates - self._start.updates)
        return max(due, 0)

    def limit(self, updates: int) -> float:
        """Agent steps that the actors may have collected after ``updates`` updates."""
        return self._start.steps + self._lookahead + (updates - self._start.updates) * self._steps_per_update


class FreeSchedule:
    """Updates as fast as possible from ``start`` on."""

    def __init__(self, start: LearningStart):
        self._start = start

    def due(self, agent_steps: int, updates: int) -> int:
        return int(agent_steps >= self._start.steps)

    def limit(self, updates: int) -> float:
        return math.inf


class BufferSchedule:
    """One update for every batch in the buffer; the actors are ahead by at most ``buffer.capacity`` steps.

    Args:
        agent_steps: agent steps so far, including steps that wait in the buffer.
    """

    def __init__(self, buffer: OrderedBuffer, batch_size: int, agent_steps: int):
        self._buffer, self._batch_size = buffer, batch_size
        self._before = agent_steps - buffer.waiting() - buffer.taken

    def due(self, agent_steps: int, updates: int) -> int:
        return self._buffer.due(self._batch_size)

    def limit(self, updates: int) -> float:
        return self._before + self._buffer.taken + self._buffer.capacity


UpdateSchedule = RatioSchedule | FreeSchedule | BufferSchedule


def make_schedule(run: RunConfig, buffer: Buffer, start: LearningStart, agent_steps: int = 0) -> UpdateSchedule:
    """Make the update schedule of a run, or of the rest of a run that is resumed after ``agent_steps``."""
    if not run.has_replay:
        return BufferSchedule(cast("OrderedBuffer", buffer), run.algo.batch_size, agent_steps)
    if run.samples_per_step is None:
        return FreeSchedule(start)
    steps_per_update = run.algo.batch_size / run.samples_per_step
    return RatioSchedule(
        steps_per_update, start, lookahead=max(2 * steps_per_update, run.parallelism.steps_ahead * run.total_envs)
    )


def schedule_sentence(run: RunConfig) -> str:
    """Sentence for the terminal: how often a run updates, and what is annealed over how long."""
    per_step, parts = run.updates_per_step, list[str]()
    if per_step is None:
        parts.append(f"updates of {run.algo.batch_size} as fast as they go")
    else:
        every = "agent step" if per_step == 1 else f"{1 / per_step:g} agent steps"
        parts.append(f"an update of {run.algo.batch_size} for every {every}")
    algorithm, optimizer = algorithm_of(run), run.optimizer
    if "optimizer" in algorithm.uses:
        over = f" over {run.decay_updates:,.0f} updates ({optimizer.lr_decay_steps:,} agent steps)"
        for name, first, last in (("learning rate", optimizer.lr, optimizer.lr_final), *algorithm.annealed()):
            parts.append(f"{name} {first:g}" + (f" to {last:g}{over}" if last not in (None, first) else ""))
    if "exploration" in algorithm.uses:
        parts.append(typed(run.exploration, Exploration).sentence())
    return f"Schedule: {'; '.join(parts)}."


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
        """End the run for a ``reason`` of a callback."""
        self._asked = reason

    def cuts_short(self, progress: Progress) -> bool:
        """Whether an evaluation must be given up: after a signal, or when the time is over."""
        return self._signals.received is not None or self._out_of_time(progress)

    def _out_of_time(self, progress: Progress) -> bool:
        return progress.wall_time_s >= self._max_seconds

    def holds(self, progress: Progress, eval_mean: float | None = None) -> bool:
        """Whether the run is over; ``reason`` is set to the condition.

        Args:
            eval_mean: mean return of the last evaluation, used instead of the training mean if ``stop.on=eval``.
        """
        if self._signals.received is not None:
            self.reason = self._signals.received.name
        elif self._solved(progress, eval_mean):
            self.reason = "reward_bound"
            progress.solved()
        elif progress.agent_steps >= self.max_steps:
            self.reason = "max_steps"
        elif self._out_of_time(progress):
            self.reason = "max_minutes"
        elif self._asked is not None:
            self.reason = self._asked
        return self.reason is not None

    def _solved(self, progress: Progress, eval_mean: float | None) -> bool:
        if self._on == "eval":
            return eval_mean is not None and self._bound <= eval_mean < math.inf
        return progress.returns.full and self._bound <= progress.returns.mean < math.inf
