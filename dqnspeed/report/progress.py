"""How far a sweep has come, and the time that is left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from dqnspeed.cli import compose
from dqnspeed.cli.sweep import sweep_jobs
from dqnspeed.report.runs import Run
from dqnspeed.report.tables import duration
from dqnspeed.tracking.run_folder import METRICS, SWEEP

SILENT_S = 600  # after which a run without a summary is taken for killed


@dataclass(frozen=True)
class Progress:
    """Jobs of sweeps, and runs that are on their own."""

    jobs: int
    ended: int
    running: int
    seconds_left: float | None

    @property
    def done(self) -> bool:
        """Whether nothing more is to be expected."""
        return self.ended >= self.jobs or not self.running

    def sentence(self) -> str:
        """Empty if all has ended."""
        if self.ended >= self.jobs:
            return ""
        left = "" if self.seconds_left is None else f"; about {duration(self.seconds_left)} are left"
        state = f"{self.running} running still{left}" if self.running else "none of the others is running"
        return f"{self.ended} of {self.jobs} runs have ended, {state}."


def progress_of(folders: Iterable[Path], runs: Sequence[Run]) -> Progress:
    """The progress of the runs at and below ``folders``.

    The time left is that of a run like those that ended (or, before one did, its limit), for each that did not.
    """
    sweeps = {file.parent: _jobs(file) for folder in folders for file in folder.rglob(SWEEP)}
    alone = [run for run in runs if not any(sweep in run.folder.parents for sweep in sweeps)]
    jobs = len(alone)
    for sweep, number in sweeps.items():
        jobs += max(number, sum(sweep in run.folder.parents for run in runs))
    ended = [run for run in runs if not run.running]
    running = [run for run in runs if run.running and _is_alive(run)]
    limits = [60 * limit for run in running if (limit := run.value("stop.max_minutes"))]
    usual = [run.seconds for run in ended if run.seconds] or limits
    left = None
    if usual and running:
        each = sum(usual) / len(usual)
        waiting = jobs - len(ended) - len(running)
        left = each * waiting + sum(max(0.0, each - run.seconds) for run in running)
    return Progress(jobs, len(ended), len(running), left)


def _is_alive(run: Run) -> bool:
    """Whether it reported lately; its lock is not asked, since that would hold up the run itself."""
    with contextlib.suppress(OSError):
        return time.time() - (run.folder / METRICS).stat().st_mtime < SILENT_S
    return False


def _jobs(file: Path) -> int:
    """The number of jobs of the sweep that Hydra keeps in ``file``; zero if that cannot be told."""
    try:
        cfg = OmegaConf.load(file)
        assert isinstance(cfg, DictConfig)
        with compose.own_hydra():
            return sum(1 for _ in sweep_jobs(cfg, GlobalHydra.instance().config_loader()))
    except Exception:  # damaged, of another sweeper, or with options that no longer exist
        return 0
