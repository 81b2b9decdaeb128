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
from dqnspeed.tracking.run_folder import SWEEP, holding

SILENT_S = 600  # after which runs that have not ended are taken for killed


@dataclass(frozen=True)
class Progress:
    """Jobs of sweeps, and runs that are on their own.

    Attributes:
        going_on: whether one that has not ended wrote lately, or another of its sweep did, which it comes after, or
            the sweep has just begun.
    """

    jobs: int
    ended: int
    going_on: bool

    @property
    def done(self) -> bool:
        """Whether nothing more is to be expected."""
        return not self.going_on or self.ended >= self.jobs

    def sentence(self) -> str:
        """Empty if all has ended."""
        if self.ended >= self.jobs:
            return ""
        state = "the others are running or to come" if self.going_on else "none of the others is running"
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
    # One of a sweep that others come after, too.
    waited_for = [run for run, at in zip(runs, above, strict=True) if run.running or at in open_sweeps]
    lately = [run.span[1] for run in waited_for if run.span] + [(at / SWEEP).stat().st_mtime for at in open_sweeps]
    # Their locks are not asked, since that would hold up the runs themselves.
    going_on = any(time.time() - written < SILENT_S for written in lately)
    return Progress(jobs, sum(not run.running for run in runs), going_on)


def _jobs(folder: Path) -> int:
    """The number of jobs of the sweep in ``folder``; zero if that cannot be told."""
    try:
        trials = OmegaConf.select(OmegaConf.load(folder / SWEEP), "hydra.sweeper.n_trials")
        record = Record.read(folder)
        return int(trials or (len(record.jobs) if record else 0))
    except Exception:  # damaged, or of another sweeper
        return 0
