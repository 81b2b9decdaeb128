"""What the terminal shows: a live line where there is a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from dqnspeed.config import RunConfig
from dqnspeed.tracking.base import Tracker

PLAIN_EVERY_S = 10.0


def show(metrics: Mapping[str, float], step: int) -> str:
    """One line of a run's state."""

    def number(name: str, form: str) -> str:
        value = metrics.get(name, math.nan)
        return format(value, form) if math.isfinite(value) else "-"

    return (
        f"{step:,} steps  {number('episode/count', '.0f')} games  "
        f"mean {number('episode/return_mean_100', '.2f')}  eps {number('train/epsilon', '.2f')}  "
        f"{number('perf/steps_per_second', ',.0f')} steps/s  {number('perf/updates_per_second', ',.0f')} updates/s  "
        f"ratio {number('perf/replay_ratio', '.1f')}"
    )


class Limit:
    """How far a run is towards the nearer of its limits."""

    def __init__(self, run: RunConfig):
        self._steps, minutes = run.stop.max_steps, run.stop.max_minutes
        self._seconds = None if minutes is None else minutes * 60

    def done(self, step: int, seconds: float) -> float:
        """Share of the limit used up, 0 where there is none."""
        return max(step / self._steps if self._steps else 0, seconds / self._seconds if self._seconds else 0)

    def left(self, step: int, seconds: float, steps_per_second: float) -> str:
        """Time left to the nearer limit, in words."""
        ways = []
        if self._seconds:
            ways.append(self._seconds - seconds)
        if self._steps and steps_per_second > 0:
            ways.append((self._steps - step) / steps_per_second)
        if not ways:
            return "no limit" if not self._steps else "?"
        minutes, rest = divmod(max(0, int(min(ways))), 60)
        hours, minutes = divmod(minutes, 60)
        return (f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}") + " left"


class RichProgress(Tracker):
    """A live bar with the current state of the run."""

    def __init__(self, run: RunConfig):
        self._limit = Limit(run)
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[state]}"),
        )
        self._task = self._progress.add_task(run.experiment.name, total=1.0, state="starting")
        self._progress.start()

    def report(self, metrics: Mapping[str, float], step: int, seconds: float) -> None:
        left = self._limit.left(step, seconds, metrics.get("perf/steps_per_second", 0))
        done = min(1.0, self._limit.done(step, seconds))
        self._progress.update(self._task, completed=done, state=f"{show(metrics, step)}  {left}")

    def close(self, summary: Mapping[str, Any]) -> None:
        self._progress.stop()


class PlainProgress(Tracker):
    """A line every ten seconds, for logs and pipes."""

    def __init__(self, run: RunConfig):
        self._limit, self._name, self._next = Limit(run), run.experiment.name, 0.0

    def report(self, metrics: Mapping[str, float], step: int, seconds: float) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PLAIN_EVERY_S
        left = self._limit.left(step, seconds, metrics.get("perf/steps_per_second", 0))
        print(f"{self._name}: {seconds:.0f} s  {show(metrics, step)}  {left}", flush=True)


def make_progress(run: RunConfig) -> Tracker:
    """The progress that ``tracking.progress`` asks for; ``auto`` looks whether there is a terminal."""
    kind = run.tracking.progress
    if kind == "auto":
        kind = "rich" if Console().is_terminal else "plain"
    return {"rich": RichProgress, "plain": PlainProgress}.get(kind, lambda _: Tracker())(run)
