"""``sweep.dry_run=true``: the jobs of a sweep, what each would be, and how long they would take."""

from __future__ import annotations

import dataclasses
import logging
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from dqnspeed.actors import ActorError
from dqnspeed.algorithms.gradient import NotFiniteError
from dqnspeed.cli.sweep_record import Job
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.threads import set_threads
from dqnspeed.runs.schedule import schedule_sentence
from dqnspeed.system import machine
from dqnspeed.system.signals import STOPPING
from dqnspeed.tracking.terminal import opening
from dqnspeed.trainer import train

log = logging.getLogger(__name__)

PROBE_S = 5.0
BATCHES = 4  # agent steps before the first update of a probe, in batches


def print_plan(jobs: Sequence[tuple[Job, RunConfig, EnvSpec]], trials: int | None = None) -> None:
    """Print each job with the most time that it takes, and the sum of these.

    Args:
        trials: of a search that are missing, of which the last two ``jobs`` have the ends of everything searched.

    A job that has no limit but agent steps is tried for :data:`PROBE_S`, once for all its seeds, to tell its speed.
    """
    speeds, each = dict[str, float](), list[float | None]()
    for job, run, spec in jobs:
        set_threads(run)
        device = str(machine.pick_device(run.device))
        what, goal, where, *_ = opening(run, run.experiment.name, device, torch.get_num_threads(), Path(job.folder))
        lines = (what, goal, where.partition(";")[0], schedule_sentence(run))
        print(f"{job.folder}: {' '.join(job.overrides)}", *lines, sep="\n    ", flush=True)
        minutes, steps, tried = run.stop.max_minutes, run.stop.max_steps, ""
        if minutes is None and steps is not None:
            kind = str(dataclasses.replace(run, seed=0))
            if kind not in speeds:
                speeds[kind] = probe(run, spec)
            if speeds[kind]:
                minutes, tried = steps / speeds[kind] / 60, f", at the {speeds[kind]:,.0f} steps/s of a short try"
        each.append(minutes)
        print("    time:", "not known" if minutes is None else f"at most {in_words(minutes)}{tried}", flush=True)
    if trials is not None:
        ends = each[-2:]
        each = [*each[:-2], *[None if None in ends else max(filter(None, ends), default=0.0)] * trials]
    open_ended, total = each.count(None), sum(filter(None, each))
    besides = f", and {open_ended} of a time that is not known" if open_ended else ""
    what = "1 job" if len(each) == 1 else f"{len(each)} jobs, one after another"
    apart = "start-up and evaluations" if any(run.eval.every_steps for _, run, _ in jobs) else "start-up"
    print(f"{what}: at most {in_words(total)}{besides}; {apart} apart")


def in_words(minutes: float) -> str:
    if minutes >= 60:
        return f"{minutes / 60:.1f} h"
    return f"{minutes:.1f} min" if minutes >= 1 else f"{minutes * 60:.0f} s"


def probe(run: RunConfig, spec: EnvSpec) -> float:
    """Agent steps per second while it learns, by a training of :data:`PROBE_S` that leaves nothing on the disk; 0 if it
    fails."""
    needs = getattr(run.algo, "least_start", lambda _: 0)  # of what learns from a replay
    soon = max(BATCHES * run.algo.batch_size, needs(run))
    tried = dataclasses.replace(
        run,
        algo=dataclasses.replace(run.algo, learning_starts=min(run.algo.learning_starts, soon)),
        stop=dataclasses.replace(run.stop, reward_bound=None, max_steps=None, max_minutes=PROBE_S / 60),
        eval=dataclasses.replace(run.eval, every_steps=None),
        tracking=dataclasses.replace(run.tracking, progress="off", tensorboard=False, wandb="disabled", video_every=0),
        checkpoint=dataclasses.replace(run.checkpoint, best=False, final=False, every_minutes=0.0),
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            summary = train(tried, spec, Path(folder), dataclasses.asdict(tried))
        except (ActorError, NotFiniteError) as error:
            log.warning("the short try failed: %s", error)
            return 0.0
    if summary["stopped_by"] in STOPPING:
        sys.exit(128 + signal.Signals[summary["stopped_by"]].value)
    return float(summary["steps_per_second"])
