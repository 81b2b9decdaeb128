"""Progress of sweeps: how many of their jobs have ended, and whether others are still running."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import OmegaConf

from dqnspeed.cli.sweep_record import Record
from dqnspeed.report.runs import Run
from dqnspeed.tracking.run_folder import SWEEP, holding, read_yaml
from dqnspeed.training.folder_lock import is_locked

MAX_SILENT_S = 600  # an unfinished run without a lock counts as killed if it has written nothing for so long


@dataclass(frozen=True)
class Progress:
    """Number of jobs of sweeps and of single runs.

    Attributes:
        unfinished: runs that have begun and not ended.
        is_running: whether one of these runs, or a sweep with jobs to come, is running.
    """

    jobs: int
    ended: int
    unfinished: int
    is_running: bool

    @property
    def is_done(self) -> bool:
        """Whether no more results can be expected."""
        return not self.is_running or self.ended >= self.jobs

    def sentence(self) -> str:
        """The progress in words; empty if all runs have ended."""
        if self.ended >= self.jobs:
            return ""
        counts = {"killed": self.unfinished, "not run": self.jobs - self.ended - self.unfinished}
        lost = ", ".join(f"{count} {'was' if count == 1 else 'were'} {what}" for what, count in counts.items() if count)
        others = "the others are running or to come" if self.is_running else lost
        return f"{self.ended} of {self.jobs} runs have ended; {others}."


def progress_of(folders: Iterable[Path], runs: Sequence[Run]) -> Progress:
    """The progress of ``runs``, which are all runs at and below ``folders``, and of their sweeps."""
    sweeps: dict[Path | None, list[Run]] = {sweep.resolve(): [] for sweep in holding(folders, SWEEP)}
    for run in runs:  # a sweep may be in the folder of another
        sweep = next((parent for parent in run.folder.resolve().parents if parent in sweeps), None)
        sweeps.setdefault(sweep, []).append(run)
    unfinished = [run for run in runs if run.is_unfinished]
    num_jobs, is_running = 0, any(_is_alive(run.folder, run.span[1]) for run in unfinished)
    for folder, own_runs in sweeps.items():
        num_own_jobs = max(len(own_runs), _num_jobs(folder) if folder else 0)
        num_jobs += num_own_jobs
        if folder and sum(not run.is_unfinished for run in own_runs) < num_own_jobs:
            # A sweep writes whenever one of its runs does.
            written = max([(folder / SWEEP).stat().st_mtime, *(run.span[1] for run in own_runs)])
            is_running = is_running or _is_alive(folder, written)
    return Progress(num_jobs, len(runs) - len(unfinished), len(unfinished), is_running)


def _is_alive(folder: Path, written: float) -> bool:
    """Whether the run or sweep in ``folder`` holds its lock; without a lock, whether it was ``written`` lately."""
    held = is_locked(folder)
    return time.time() - written < MAX_SILENT_S if held is None else held


def _num_jobs(folder: Path) -> int:
    """Number of jobs of a sweep; zero if unknown."""
    with contextlib.suppress(Exception):  # damaged, or of another sweeper
        config, record = OmegaConf.create(read_yaml(folder / SWEEP)), Record.read(folder)
        return int(OmegaConf.select(config, "hydra.sweeper.n_trials") or (len(record.jobs) if record else 0))
    return 0
