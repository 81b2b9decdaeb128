"""When updates are due, and how far actors may run ahead."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from dqnspeed.algorithms import algorithm_of
from dqnspeed.buffers import Buffer
from dqnspeed.buffers.ordered import OrderedBuffer
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.exploration.base import Exploration


@dataclass(frozen=True)
class LearningStart:
    """Counts of agent steps and updates at which learning starts, or restarts after a resume."""

    steps: int
    updates: int


class RatioSchedule:
    """One update per ``steps_per_update`` agent steps; the first one at ``start``.

    Args:
        lookahead: agent steps that the actors may run ahead of the learner.
    """

    def __init__(self, steps_per_update: float, start: LearningStart, lookahead: float = 0):
        self._steps_per_update, self._start, self._lookahead = steps_per_update, start, lookahead

    def due(self, agent_steps: int, updates: int) -> int:
        """Number of updates that are due now."""
        collected = agent_steps - self._start.steps
        if collected < 0:
            return 0
        due = math.floor(collected / self._steps_per_update) + 1 - (updates - self._start.updates)
        return max(due, 0)

    def limit(self, updates: int) -> float:
        """Maximum total of agent steps after ``updates`` updates."""
        return self._start.steps + self._lookahead + (updates - self._start.updates) * self._steps_per_update


class FreeSchedule:
    """One update in each pass of the training loop from ``start`` on; actors never wait."""

    def __init__(self, start: LearningStart):
        self._start = start

    def due(self, agent_steps: int, updates: int) -> int:
        return int(agent_steps >= self._start.steps)

    def limit(self, updates: int) -> float:
        return math.inf


class BufferSchedule:
    """One update per batch in the buffer; at most ``buffer.capacity`` steps may wait there.

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
    """Make the update schedule of a run that was resumed after ``agent_steps``, or is new."""
    if not run.has_replay:
        return BufferSchedule(cast("OrderedBuffer", buffer), run.algo.batch_size, agent_steps)
    if run.samples_per_step is None:
        return FreeSchedule(start)
    steps_per_update = run.algo.batch_size / run.samples_per_step
    return RatioSchedule(
        steps_per_update, start, lookahead=max(2 * steps_per_update, run.parallelism.steps_ahead * run.total_envs)
    )


def schedule_sentence(run: RunConfig) -> str:
    """Sentence for the terminal: how often updates happen, and which values are annealed."""
    per_step, parts = run.updates_per_step, list[str]()
    if per_step is None:
        parts.append(f"as many updates as possible (batch size {run.algo.batch_size})")
    else:
        every = "agent step" if per_step == 1 else f"{1 / per_step:g} agent steps"
        parts.append(f"an update per {every} (batch size {run.algo.batch_size})")
    algorithm, optimizer = algorithm_of(run), run.optimizer
    if "optimizer" in algorithm.uses:
        steps = run.decay_steps
        over = f" over {run.decay_updates:,.0f} updates ({steps:,} agent steps)" if steps else " over the whole run"
        falls = steps is not None or run.decay_seconds is not None
        for name, first, last in (("learning rate", optimizer.lr, optimizer.lr_final), *algorithm.annealed()):
            parts.append(f"{name} {first:g}" + (f" to {last:g}{over}" if falls and last not in (None, first) else ""))
    if "exploration" in algorithm.uses:
        parts.append(typed(run.exploration, Exploration).sentence())
    return f"Schedule: {'; '.join(parts)}."
