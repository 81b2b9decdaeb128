"""``sweep.dry_run=true``: print the jobs of a sweep, their configurations and their time limits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from dqnspeed.cli.sweep_record import Job
from dqnspeed.config.changes import without_escapes
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.threads import set_threads
from dqnspeed.system import machine
from dqnspeed.tracking.terminal import opening
from dqnspeed.training.schedule import schedule_sentence


def print_plan(jobs: Sequence[tuple[Job, RunConfig, EnvSpec]], last: int = 1) -> None:
    """Print each job with its time limit, ``stop.max_minutes``, and the sum of the limits.

    Args:
        last: number of jobs that the last one stands for.
    """
    for job, run, _ in jobs:
        set_threads(run)
        device = str(machine.pick_device(run.device))
        what, goal, where, *_ = opening(run, run.experiment.name, device, torch.get_num_threads(), Path(job.folder))
        lines = (what, goal, where.partition(";")[0], schedule_sentence(run), f"time: {_at_most(run.stop.max_minutes)}")
        print(f"{job.folder}: {' '.join(map(without_escapes, job.overrides))}", *lines, sep="\n    ")
    each = [run.stop.max_minutes for _, run, _ in jobs]
    each = [*each[:-1], *each[-1:] * last]
    open_ended = each.count(None)
    limits = [_at_most(sum(filter(None, each)))] if open_ended < len(each) else []
    limits += [f"{open_ended} without a time limit"] if open_ended else []
    what = "1 job" if len(each) == 1 else f"{len(each)} jobs, one after another"
    print(f"{what}: {', and '.join(limits)}, without start-up")


def _at_most(minutes: float | None) -> str:
    return "not known" if minutes is None else f"at most {minutes:,.1f} min"
