"""How far a sweep has come, and the time that is left."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import OmegaConf

from dqnspeed.cli.sweep_record import Record
from dqnspeed.report.runs import Run
from dqnspeed.report.tables import duration
from dqnspeed.tracking.run_folder import SWEEP, holding

SILENT_S = 600  # after which runs that have not ended are taken for killed


@dataclass(frozen=True)
class Progress:
    """Jobs of sweeps, and runs that are on their own.

    Attributes:
        going_on: whether one that has not ended wrote lately, or another of its sweep did, which it comes after, or
            the sweep has just begun.
        seconds_left: an estimate, if there is anything to estimate it from.
    """

    jobs: int
    ended: int
    going_on: bool
    seconds_left: float | None

    @property
    def done(self) -> bool:
        """Whether nothing more is to be expected."""
        return not self.going_on or self.ended >= self.jobs

    def sentence(self) -> str:
        """Empty if all has ended."""
        if self.ended >= self.jobs:
            return ""
        left = "" if not self.seconds_left else f", about {duration(self.seconds_left)} are left"
        state = f"the others are running or to come{left}" if self.going_on else "none of the others is running"
        return f"{self.ended} of {self.jobs} runs have ended; {state}."


def progress_of(folders: Iterable[Path], runs: Sequence[Run]) -> Progress:
    """The progress of the runs at and below ``folders``.

    The time left is that of a run like those that ended (or, before one did, its limit), for each that did not.
    """
    sweeps = {sweep.resolve(): _jobs(sweep) for sweep in holding(folders, SWEEP)}
    # A sweep may be in the folder of another.
    above = [next((at for at in run.folder.resolve().parents if at in sweeps), None) for run in runs]
    of = Counter(above)
    whole = Counter(at for run, at in zip(runs, above, strict=True) if not run.running)
    open_sweeps = {at for at, number in sweeps.items() if whole[at] < max(number, of[at])}
    jobs = of[None] + sum(max(number, of[sweep]) for sweep, number in sweeps.items())
    begun = [run for run in runs if run.running]
    # One of a sweep that others come after, too.
    waited_for = [run for run, at in zip(runs, above, strict=True) if run.running or at in open_sweeps]
    lately = [run.span[1] for run in waited_for if run.span] + [(at / SWEEP).stat().st_mtime for at in open_sweeps]
    ended = [run for run in runs if not run.running]
    # Their locks are not asked, since that would hold up the runs themselves.
    going_on = any(time.time() - written < SILENT_S for written in lately)
    limits = [60 * limit for run in begun if (limit := run.value("stop.max_minutes"))]
    usual = [run.seconds for run in ended if run.seconds] or limits
    left = None
    if usual:
        each = sum(usual) / len(usual)
        rests = [max(0.0, each - run.seconds) for run in begun]
        together = max(1, sum(run.span is not None and time.time() - run.span[1] < SILENT_S for run in begun))
        left = max([(each * (jobs - len(ended) - len(begun)) + sum(rests)) / together, *rests])
    return Progress(jobs, len(ended), going_on, left)


def _jobs(folder: Path) -> int:
    """The number of jobs of the sweep in ``folder``; zero if that cannot be told."""
    try:
        trials = OmegaConf.select(OmegaConf.load(folder / SWEEP), "hydra.sweeper.n_trials")
        record = Record.read(folder)
        return int(trials or len((record and record.jobs) or []))
    except Exception:  # damaged, or of another sweeper
        return 0
