"""The parts of a run: made in order, or restored from a checkpoint."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dqnspeed.actors import ActorArguments, Actors, make_actors
from dqnspeed.algorithms import Learner, algorithm_of, make_buffer, make_learner
from dqnspeed.algorithms.memory_estimate import buffer_device
from dqnspeed.buffers import Buffer
from dqnspeed.buffers.storage import layout_bytes
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.malloc import keep_memory
from dqnspeed.execution.precision import set_precision
from dqnspeed.execution.threads import LearnerThreads, set_threads
from dqnspeed.system import machine, seeding
from dqnspeed.system.signals import StopSignals
from dqnspeed.system.startup import startup
from dqnspeed.tracking import Trackers, file_sizes, make_trackers, time_logged
from dqnspeed.tracking.run_folder import CHECKPOINTS, EVALUATING, METRICS
from dqnspeed.tracking.video import EpisodeVideos
from dqnspeed.training.checkpoint import Checkpoints
from dqnspeed.training.evaluation import Evaluator
from dqnspeed.training.schedule import LearningStart, Prune, StopRule, UpdateSchedule, make_schedule
from dqnspeed.training.state_file import State
from dqnspeed.training.summary import Progress, summarize, write_summary

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

    @property
    def begun_again(self) -> bool:
        """Whether the run was killed before its first checkpoint and started again from its first step."""
        return self.state is not None and (not self.state or bool(self.state["progress"]["begun_again"]))


class Learning:
    """The parts that learn, measure and record: all but those that act. They close with ``resources``."""

    def __init__(self, plan: Plan, signals: StopSignals, resources: contextlib.ExitStack):
        run, folder = plan.run, plan.folder
        self.plan, self.run, self.folder = plan, run, folder
        self.device = machine.pick_device(run.device)
        self.threads = LearnerThreads(run, self.device)
        self.progress = Progress(run, plan.benchmark, plan.begun_again)
        self.stop = StopRule(run.stop, signals)
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

    def close(self, error: BaseException | None) -> dict[str, Any]:
        """Write the summary of a run that ended, by ``error`` or not, and return it."""
        plan, checkpoints = self.plan, self.checkpoints
        summary = summarize(
            plan.run, plan.label, self.progress, self.device, self.learner.updates, self.evaluator.mean,
            self.evaluator.count, self.stop.reason, error,
        )  # fmt: skip
        summary["not_written"] = checkpoints.not_written()
        summary["not_written"] += write_summary(plan.folder, summary)
        self.trackers.close(summary)
        return summary

    def _load(self, state: State) -> None:
        try:
            self.learner.load_state_dict(state["learner"])
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"resume={self.folder}: its checkpoint is of another network; has the environment or a plugin changed?"
            ) from error
        self.progress.load_state_dict(state["progress"], self.learner.updates)
        self.evaluator.load_state_dict(state["evaluation"])
        self.checkpoints.load_state_dict(state["checkpoints"])
        self.start = LearningStart(**state["learning_start"])

    def _trackers(self, state: State | None) -> Trackers:
        plan, sizes, clocks, resumed_at = self.plan, state["files"] if state else {}, dict[str, float](), None
        if state is not None:
            size, resumed_at = sizes.get(METRICS, 0), self.progress.agent_steps
            logged, evaluated = time_logged(plan.folder, size), time_logged(plan.folder, size, EVALUATING) or 0.0
            if not state:
                self.progress.lost_s = logged or 0.0  # nothing of which is in this run, which has its whole time
            elif self.progress.count_lost(logged, evaluated, self.learner.updates):
                clocks = {"time": self.progress.clock.now(), EVALUATING: self.progress.eval_clock.now()}
        return make_trackers(plan.run, plan.folder, plan.config, plan.label, plan.group, resumed_at, sizes, clocks)


class Acting:
    """The actors, the buffer, and the schedule between them and the learner. They close with ``resources``."""

    def __init__(self, learning: Learning, resources: contextlib.ExitStack):
        plan, learner, progress = learning.plan, learning.learner, learning.progress
        run, spec, state, device = plan.run, plan.spec, plan.state, learning.device
        self.buffer: Buffer = make_buffer(run, spec, place_of_memory(run, spec))
        resources.callback(self.buffer.close)
        learner.attach(self.buffer)
        if state:
            self._load(state, learning)
        actors, segment = (state["actors"] if state else None), len(progress.resumed_at)
        startup.switch("actors")
        self.actors: Actors = make_actors(
            ActorArguments(run, spec, learner.network, self.buffer, device, actors, segment)
        )
        resources.callback(self.actors.close)
        with seeding.preserved(), startup.within("compilation"):
            learner.warm_up(self.buffer.blank(run.algo.batch_size))
        if state:
            seeding.load_state_dict(state["random"])
        progress.replay_device = str(self.buffer.storage.device)
        progress.acting = self.actors.how
        progress.warn_busy(learning.threads.warning())
        self.schedule: UpdateSchedule = make_schedule(run, self.buffer, learning.start, progress.agent_steps)

    def _load(self, state: State, learning: Learning) -> None:
        if stored := state.pop("replay"):  # it may take half of the machine's memory
            self.buffer.load_state_dict(stored)
            return
        self.buffer.resume_empty(learning.learner.updates)
        steps = learning.run.algo.learning_starts
        learning.start = LearningStart(learning.progress.agent_steps + steps, learning.learner.updates)
        log.info(
            "the replay was not saved (checkpoint.replay=false): it is filled anew for %s agent steps before learning "
            "continues", f"{steps:,}",
        )  # fmt: skip


def place_of_memory(run: RunConfig, spec: EnvSpec) -> torch.device | None:
    """The device of experience, ``None`` for the host; the log says what it takes of a GPU, or why it takes none."""
    where, device = buffer_device(run, spec), machine.pick_device(run.device)
    taken = machine.in_words(layout_bytes(algorithm_of(run).layout(run, spec)))
    if where is not None:
        log.info("experience takes %s of the memory of %s", taken, where)
    elif device.type == "cuda" and run.replay.device == "auto":
        free = machine.in_words(machine.free_gpu_memory(device))
        log.info(
            "experience takes %s, and of the %s that are free on %s not as many can be had: it is kept "
            "on the host", taken, free, device,
        )  # fmt: skip
    return where


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
        "replay": acting.buffer.state_dict() if learning.run.keeps_memory else None,
        "actors": acting.actors.state_dict(),
        "random": seeding.state_dict(),
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
