"""How far a sweep has come."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import OmegaConf

from dqnspeed.cli.sweep_record import Record
from dqnspeed.report.runs import Run
from dqnspeed.tracking.run_folder import SWEEP, holding, read_yaml
from dqnspeed.training.folder_lock import is_locked

SILENT_S = 600  # after which a run that has not ended, and locks no folder, is taken for killed


@dataclass(frozen=True)
class Progress:
    """Jobs of sweeps, and runs that are on their own.

    Attributes:
        open: runs that have begun and not ended.
        going_on: whether one of these, or the sweep of one that is to come, is running still.
    """

    jobs: int
    ended: int
    open: int
    going_on: bool

    @property
    def done(self) -> bool:
        """Whether nothing more is to be expected."""
        return not self.going_on or self.ended >= self.jobs

    def sentence(self) -> str:
        """Empty if all has ended."""
        if self.ended >= self.jobs:
            return ""
        counts = {"killed": self.open, "not run": self.jobs - self.ended - self.open}
        left = ", ".join(f"{count} {'was' if count == 1 else 'were'} {what}" for what, count in counts.items() if count)
        state = "the others are running or to come" if self.going_on else left
        return f"{self.ended} of {self.jobs} runs have ended; {state}."


def progress_of(folders: Iterable[Path], runs: Sequence[Run]) -> Progress:
    """The progress of the runs at and below ``folders``."""
    sweeps = {sweep.resolve(): _jobs(sweep) for sweep in holding(folders, SWEEP)}
    # A sweep may be in the folder of another.
    above = [next((at for at in run.folder.resolve().parents if at in sweeps), None) for run in runs]
    of = Counter(above)
    whole = Counter(at for run, at in zip(runs, above, strict=True) if not run.running)
    open_sweeps = {at for at, number in sweeps.items() if whole[at] < max(number, of[at])}
    jobs = of[None] + sum(max(number, of[sweep]) for sweep, number in sweeps.items())
    running = [run for run in runs if run.running]
    # A sweep writes with each of its runs.
    written = {at: (at / SWEEP).stat().st_mtime for at in open_sweeps}
    for run, at in zip(runs, above, strict=True):
        if at in written and run.span:
            written[at] = max(written[at], run.span[1])
    going_on = any(_is_alive(run.folder, run.span[1] if run.span else 0.0) for run in running)
    going_on = going_on or any(_is_alive(at, last, _is_queued(at)) for at, last in written.items())
    return Progress(jobs, len(runs) - len(running), len(running), going_on)


def _is_alive(folder: Path, written: float, queued: bool = False) -> bool:
    """Whether the run or sweep in ``folder`` is running, by its lock; else whether it has ``written`` lately.

    Args:
        queued: by a cluster, where nothing is locked before a job begins.
    """
    held = None if queued else is_locked(folder)
    return time.time() - written < SILENT_S if held is None else held


def _is_queued(folder: Path) -> bool:
    """Whether the jobs of the sweep in ``folder`` wait for Slurm, which does not need the process of the sweep."""
    try:
        return "Slurm" in str(OmegaConf.select(OmegaConf.create(read_yaml(folder / SWEEP)), "hydra.launcher._target_"))
    except Exception:  # damaged
        return False


def _jobs(folder: Path) -> int:
    """The number of jobs of the sweep in ``folder``; zero if that cannot be told."""
    try:
        trials = OmegaConf.select(OmegaConf.create(read_yaml(folder / SWEEP)), "hydra.sweeper.n_trials")
        record = Record.read(folder)
        return int(trials or (len(record.jobs) if record else 0))
    except Exception:  # damaged, or of another sweeper
        return 0
