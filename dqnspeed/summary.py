"""What a run has come to so far, and ``summary.json``, what it came to in the end."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from dqnspeed import machine
from dqnspeed.actors import Collected
from dqnspeed.config import RunConfig
from dqnspeed.envs import Episode
from dqnspeed.learners import LearnerStats
from dqnspeed.tracking.metrics import Clock, Ema, Returns, Speed, Timer, rates

log = logging.getLogger(__name__)


class Progress:
    """Counters, clocks and returns of a run."""

    def __init__(self, run: RunConfig):
        self.clock, self.timer = Clock(), Timer(("sampling", "updating"))
        self.returns = Returns(run.stop.window)
        self.startup_s = 0.0
        self._created = time.perf_counter()
        self.agent_steps = 0
        self.time_to_solve_s: float | None = None
        self.learning_began = (0.0, 0)  # seconds and agent steps at the first update
        self._epsilon = 1.0
        self._loss = Ema()
        self._every, self._next_report = run.tracking.report_every_s, 0.0
        self._batch_size, self._frame_skip = run.algo.batch_size, run.wrappers.frame_skip
        self._speed = Speed(self._batch_size, self._frame_skip)

    def start(self) -> None:
        """The first environment step begins."""
        self.startup_s = time.perf_counter() - self._created
        self.clock.start()

    def add(self, collected: Collected) -> None:
        self.agent_steps += collected.agent_steps
        self._epsilon = collected.epsilon

    def new_episodes(self, collected: Collected) -> Iterator[tuple[int, Episode]]:
        """The games that ended, numbered from 1, each counted as it is handed out."""
        for episode in collected.episodes:
            self.returns.add(episode)
            yield self.returns.count, episode

    def learning_started(self) -> None:
        self.learning_began = (self.clock.now(), self.agent_steps)

    def solved(self) -> None:
        self.time_to_solve_s = self.clock.now()

    def report_is_due(self) -> bool:
        if self.clock.now() < self._next_report:
            return False
        self._next_report = self.clock.now() + self._every
        return True

    def metrics(self, stats: LearnerStats, updates: int) -> dict[str, float]:
        """The metrics of a report; those without a value yet are NaN."""
        if stats.loss == stats.loss:
            self._loss.add(stats.loss)
        return {
            **self.returns.metrics(),
            "train/loss": stats.loss,
            "train/loss_avg": float("nan") if self._loss.value is None else self._loss.value,
            "train/q_mean": stats.q_mean,
            "train/epsilon": self._epsilon,
            "train/updates": updates,
            **self._speed.metrics(self.clock.now(), self.agent_steps, updates),
        }

    def speed_while_learning(self, updates: int) -> dict[str, float]:
        """``perf/*`` from the first update to now; from the first step where nothing was learnt."""
        then, steps = self.learning_began
        return rates(self.clock.now() - then, self.agent_steps - steps, updates, self._batch_size, self._frame_skip)


def summarize(
    run: RunConfig,
    progress: Progress,
    device: torch.device,
    updates: int,
    reason: str | None,
    error: BaseException | None,
) -> dict[str, Any]:
    """The contents of ``summary.json``. Speeds and the replay ratio leave the warm-up out."""
    speed = progress.speed_while_learning(updates)
    mean = progress.returns.mean
    return {
        "experiment": run.experiment.name,
        "kind": list(run.experiment.kind),
        "env": run.env.id,
        "solved": progress.time_to_solve_s is not None,
        "stopped_by": "error" if error is not None else reason,
        "error": None if error is None else f"{type(error).__name__}: {error}",
        "time_to_solve_s": _rounded(progress.time_to_solve_s),
        "startup_s": _rounded(progress.startup_s),
        "wall_time_s": _rounded(progress.clock.now()),
        "agent_steps": progress.agent_steps,
        "frames": progress.agent_steps * run.wrappers.frame_skip,
        "episodes": progress.returns.count,
        "updates": updates,
        "steps_per_second": _rounded(speed["perf/steps_per_second"]),
        "updates_per_second": _rounded(speed["perf/updates_per_second"]),
        "replay_ratio": _rounded(speed["perf/replay_ratio"]),
        "return_mean_100": _rounded(mean) if progress.returns.count else None,
        "peak_rss_mib": _rounded(machine.peak_rss_mib()),
        "seed": run.seed,
        "machine": machine.describe(device),
        "versions": machine.versions(),
        "git_commit": machine.git_commit(),
    }


def write_summary(path: Path, summary: dict[str, Any]) -> None:
    """Write ``summary.json`` whole or not at all; a disk that refuses it is a warning."""
    partial = path.with_suffix(".partial")
    try:
        partial.write_text(json.dumps(summary, indent=2) + "\n")
        os.replace(partial, path)
    except OSError as error:
        log.warning("%s could not be written: %s", path, error)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
