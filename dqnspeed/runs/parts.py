"""The parts of a run: made in order, or restored from a checkpoint."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dqnspeed.actors import Actors
from dqnspeed.algorithms import Learner, make_learner
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.memory import keep_memory
from dqnspeed.execution.precision import set_precision
from dqnspeed.execution.threads import LearnerThreads, set_threads
from dqnspeed.execution.world import device_of_rank
from dqnspeed.memory import Memory
from dqnspeed.runs.checkpoint import Checkpoints
from dqnspeed.runs.evaluation import Evaluator
from dqnspeed.runs.hands import Hands, HandsArguments
from dqnspeed.runs.ranks import Leading
from dqnspeed.runs.schedule import LearningStart, Prune, StopRule, UpdateSchedule, make_schedule
from dqnspeed.runs.state_file import State
from dqnspeed.runs.summary import Progress, summarize, write_summary
from dqnspeed.system import machine, seeding
from dqnspeed.system.signals import StopSignals
from dqnspeed.tracking import FolderCheck, FolderGoneError, Trackers, file_sizes, make_trackers, time_logged
from dqnspeed.tracking.run_folder import CHECKPOINTS, METRICS
from dqnspeed.tracking.video import EpisodeVideos

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """The input of a run.

    Args:
        run: the checked configuration; ``spec``: the shapes of its environment.
        config: the same configuration as plain data, for the trackers.
        label: the run's name; ``group``: the name of its sweep.
        state: what it resumes from; empty if it starts again from its first step, ``None`` for a new run.
        benchmark: whether it has the machine for itself; ``prune``: asked at every report whether to end it.
    """

    run: RunConfig
    spec: EnvSpec
    folder: Path
    config: Mapping[str, Any]
    label: str
    group: str | None
    state: State | None
    benchmark: bool = True
    prune: Prune | None = None


class Learning:
    """The parts that learn, measure and record: all but those that act. They close with ``resources``."""

    def __init__(self, plan: Plan, signals: StopSignals, resources: contextlib.ExitStack):
        run, folder = plan.run, plan.folder
        self.plan, self.run, self.folder = plan, run, folder
        self.device = device_of_rank(run)
        self.threads = LearnerThreads(run, self.device)
        self.progress, self.stop = Progress(run, plan.benchmark), StopRule(run.stop, signals)
        self.learner: Learner = make_learner(run, plan.spec, self.device)
        self.evaluator = Evaluator(run, plan.spec, self.learner.network, self.device)
        resources.callback(self.evaluator.close)
        self.videos = EpisodeVideos(folder, run, plan.spec)
        resources.callback(self.videos.close)
        self.checkpoints = Checkpoints(folder / CHECKPOINTS, run.checkpoint, run.stop.measure)
        self.start = LearningStart(run.algo.learning_starts, updates=0)
        if plan.state:
            self._load(plan.state)
        self.trackers = self._trackers(plan.state)
        self.folder_check = FolderCheck(folder / METRICS)

    def close(self, error: BaseException | None) -> dict[str, Any]:
        """Write the summary of a run that ended, by ``error`` or not, and return it."""
        plan, checkpoints = self.plan, self.checkpoints
        summary = summarize(
            plan.run, plan.label, self.progress, self.device, self.learner.updates, self.evaluator.mean,
            self.stop.reason, error,
        )  # fmt: skip
        summary["not_written"] = checkpoints.not_written()
        if not isinstance(error, FolderGoneError):
            summary["not_written"] += write_summary(plan.folder, summary)
        self.trackers.close(summary)
        return summary

    def _load(self, state: State) -> None:
        self.learner.load_state_dict(state["learner"])
        self.progress.load_state_dict(state["progress"], self.learner.updates)
        self.evaluator.load_state_dict(state["evaluation"])
        self.checkpoints.load_state_dict({"provisional": not self.progress.returns.full, **state["checkpoints"]})
        self.start = LearningStart(**state["learning_start"])

    def _trackers(self, state: State | None) -> Trackers:
        plan, sizes, seconds, resumed_at = self.plan, (state or {}).get("files", {}), 0.0, None
        if state is not None:
            logged, resumed_at = time_logged(plan.folder, sizes.get(METRICS, 0)), self.progress.agent_steps
            if self.progress.count_lost(logged if state else logged or 0.0, self.learner.updates):
                seconds = self.progress.clock.now()
        return make_trackers(plan.run, plan.folder, plan.config, plan.label, plan.group, resumed_at, sizes, seconds)


class Acting:
    """The actors, the memory, and the schedule between them and the learner. They close with ``resources``.

    Of a run in several processes they stand for those of all.
    """

    def __init__(self, learning: Learning, resources: contextlib.ExitStack):
        plan, learner, progress = learning.plan, learning.learner, learning.progress
        run, state = plan.run, plan.state
        if state and not state["replay"]:
            self._start_anew(learning)
        arguments = HandsArguments(run, plan.spec, learner, learning.device, state, segment=len(progress.resumed_at))
        self._parts: Hands | Leading
        if run.execution.world_size == 1:
            self._parts = Hands(arguments, resources)
        else:
            self._parts = Leading(arguments, resources, plan.config)
        self.memory: Memory = self._parts.memory
        progress.replay_device = str(self.memory.device)
        self.actors: Actors = self._parts.actors
        progress.acting = self.actors.how
        progress.warn_busy(learning.threads.warning())
        self.schedule: UpdateSchedule = make_schedule(run, self.memory, learning.start, progress.agent_steps)

    def state_dict(self) -> State:
        """All that they need to continue; the actors must be paused."""
        return self._parts.state_dict()

    def _start_anew(self, learning: Learning) -> None:
        steps = learning.run.algo.learning_starts
        learning.start = LearningStart(learning.progress.agent_steps + steps, learning.learner.updates)
        log.info(
            "the replay was not saved (checkpoint.replay=false): it is filled anew for %s agent steps before learning "
            "continues", f"{steps:,}",
        )  # fmt: skip


def snapshot(learning: Learning, acting: Acting) -> State:
    """All that the run needs to resume; the actors must be paused."""
    learning.videos.finish()  # the files name them
    return {
        "config": learning.plan.config,
        "learner": learning.learner.state_dict(),
        "progress": learning.progress.state_dict(),
        "evaluation": learning.evaluator.state_dict(),
        "checkpoints": learning.checkpoints.state_dict(),
        "learning_start": {"steps": learning.start.steps, "updates": learning.start.updates},
        **acting.state_dict(),
        "files": file_sizes(learning.folder),
    }


def prepare_process(run: RunConfig) -> None:
    """Reset peak memory, seed everything, and set torch's threads."""
    machine.reset_peak_rss()
    machine.reset_peak_gpu()
    seeding.seed_everything(run.seed)
    set_threads(run)
    set_precision(run.execution)
    keep_memory(run.execution)
    if run.execution.compile:
        torch.compiler.reset()  # after some runs in one process, its limit of versions of a function would be reached
