"""The one training loop: collect, store, learn, report, save.

It knows its parts by what they do, not by which option made them: actors collect into a memory, the schedule says
when updates are due, the memory gives the batches and the learner takes them. A replay, the queue of A3C, the rollouts
of PPO and the single transitions that move a table are all memories.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from dqnspeed.actors import Actors, Collected, make_actors, memory_lock
from dqnspeed.algorithms import make_learner
from dqnspeed.algorithms.gradient import Learner
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.threads import LearnerThreads, set_threads
from dqnspeed.memory import Memory, make_memory
from dqnspeed.runs.checkpoint import Checkpoints, State, state_to_resume
from dqnspeed.runs.evaluation import Evaluator, evaluation_metrics
from dqnspeed.runs.folder_lock import locked_folder
from dqnspeed.runs.schedule import LearningStart, StopRule, UpdateSchedule, make_schedule
from dqnspeed.runs.summary import Progress, summarize, write_summary
from dqnspeed.system import atomic, machine, seeding
from dqnspeed.system.signals import StopSignals
from dqnspeed.tracking import FolderGoneError, Presence, Trackers, file_sizes, make_trackers, time_logged
from dqnspeed.tracking.metrics import times
from dqnspeed.tracking.run_folder import CHECKPOINTS, CONFIG, METRICS
from dqnspeed.tracking.video import EpisodeVideos

log = logging.getLogger(__name__)

FIRST_GAMES = 10  # training games before their mean return can be a best one, provisionally


def train(
    run: RunConfig,
    spec: EnvSpec,
    folder: Path,
    config: Mapping[str, Any],
    group: str | None = None,
    resume: bool = False,
    label: str | None = None,
) -> dict[str, Any]:
    """Train one agent in ``folder`` and return its summary.

    Args:
        run: the checked configuration; ``spec``: the shapes of its environment.
        config: the same configuration as plain data, for the trackers; ``group`` names the sweep it belongs to.
        resume: go on with the run in ``folder`` from its newest checkpoint; from its start where it was killed
            before the first was due.
        label: the run's name among others, by default that of its rung.

    Raises:
        ConfigError: the folder holds another run already; or the run to be resumed is still running, or left nothing
            to go on from.
        ActorError: an actor process died, hung or raised.
        NotFiniteError: a loss or a Q-value was not finite. In both cases the summary has been written.
        FolderGoneError: ``folder`` was deleted or moved.
    """
    label = label or run.experiment.name
    machine.reset_peak_rss()
    machine.reset_peak_gpu()
    seeding.seed_everything(run.seed)
    set_threads(run)
    device = machine.pick_device(run.device)
    learner_threads = LearnerThreads(run, device)
    with StopSignals() as signals, contextlib.ExitStack() as resources:
        resources.enter_context(locked_folder(folder, resume))
        state = state_to_resume(folder, run.checkpoint) if resume else None
        keep_configuration(folder, config)
        progress, stop = Progress(run), StopRule(run.stop, signals)
        learner = make_learner(run, spec, device)
        evaluator = Evaluator(run, spec, learner.network, device)
        resources.callback(evaluator.close)
        videos = EpisodeVideos(folder, run, spec)
        resources.callback(videos.close)
        checkpoints = Checkpoints(folder / CHECKPOINTS, run.checkpoint)
        start = LearningStart(run.algo.learning_starts, updates=0)
        if state:
            learner.load_state_dict(state["learner"])
            progress.load_state_dict(state["progress"], learner.updates)
            evaluator.load_state_dict(state["evaluation"])
            checkpoints.load_state_dict({"provisional": not progress.returns.full, **state["checkpoints"]})
            start = LearningStart(**state["learning_start"])
        sizes, seconds, resumed_at = (state or {}).get("files", {}), 0.0, None
        if resume:
            told, resumed_at = time_logged(folder, sizes.get(METRICS, 0)), progress.agent_steps
            if progress.count_lost(told if state else told or 0.0, learner.updates):
                seconds = progress.clock.now()
        trackers = make_trackers(run, folder, config, label, group, resumed_at, sizes, seconds)
        presence = Presence(folder / METRICS)
        error: BaseException | None = None
        try:
            lock = memory_lock(run)
            memory = make_memory(run, spec, lock, device)
            resources.callback(memory.close)
            if state and (stored := state.pop("replay")):
                memory.load_state_dict(stored)
                del stored  # it may be half of the memory
            elif state:
                start = LearningStart(progress.agent_steps + run.algo.learning_starts, learner.updates)
                log.info(
                    "the replay was not saved (checkpoint.replay=false): it is filled anew for %s agent steps before "
                    "learning goes on", f"{run.algo.learning_starts:,}",
                )  # fmt: skip
            actors_state, segment = (state["actors"] if state else None), len(progress.resumed_at)
            actors = make_actors(run, spec, learner.network, memory, lock, device, actors_state, segment)
            resources.callback(actors.close)
            with seeding.preserved():
                learner.warm_up(memory.blank(run.algo.batch_size))
            progress.warn_busy(learner_threads.warning())
            if state:
                seeding.load_state_dict(state["random"])
            Training(
                run, folder, config, device, learner, memory, actors, evaluator, trackers, videos, checkpoints,
                progress, stop, start, make_schedule(run, memory, start, progress.agent_steps), presence,
                learner_threads,
            ).loop()  # fmt: skip
        except BaseException as raised:
            error = raised
            raise
        finally:
            summary = summarize(run, label, progress, device, learner.updates, evaluator.mean, stop.reason, error)
            summary["not_written"] = checkpoints.not_written()
            if not isinstance(error, FolderGoneError):
                summary["not_written"] += write_summary(folder, summary)
            trackers.close(summary)
    return summary


def keep_configuration(folder: Path, config: Mapping[str, Any]) -> None:
    """Keep a copy of the configuration in ``folder`` that a power cut cannot spoil, as Hydra's own can be."""
    try:
        atomic.write_json(folder / CONFIG, config)
    except OSError as error:
        log.warning("%s could not be written, training goes on: %s", folder / CONFIG, error)


@dataclass
class Training:
    """The parts of a run, and the loop that they go round in."""

    run: RunConfig
    folder: Path
    config: Mapping[str, Any]
    device: torch.device
    learner: Learner
    memory: Memory
    actors: Actors
    evaluator: Evaluator
    trackers: Trackers
    videos: EpisodeVideos
    checkpoints: Checkpoints
    progress: Progress
    stop: StopRule
    start: LearningStart
    schedule: UpdateSchedule
    presence: Presence
    learner_threads: LearnerThreads
    evaluated: Mapping[str, float] = field(default_factory=dict)  # of an evaluation that no report has told of

    def loop(self) -> None:
        learner, actors, progress = self.learner, self.actors, self.progress
        actors.begin()
        progress.start()
        while not self.stop.holds(progress, self.evaluator.mean):
            actors.dispatch()
            learnt = self.learn()
            limit = min(self.schedule.limit(learner.updates), self.stop.max_steps)
            self.absorb(actors.collect(limit, wait=not learnt))
            if self.evaluator.is_due(progress.agent_steps):
                self.evaluate()
            if self.checkpoints.is_due():
                self.pause()
                self.checkpoints.save_periodic(self.snapshot(), progress.agent_steps)
                actors.proceed()
            elif progress.report_is_due():
                self.report()
        self.pause()
        if self.checkpoints.keeps_final:
            self.checkpoints.save_final(self.snapshot())
        self.videos.finish()

    def learn(self) -> int:
        """Do the updates that are due; returns how many they were."""
        learner, progress = self.learner, self.progress
        if not learner.begun:
            if progress.agent_steps >= self.start.steps:
                learner.begin(self.memory.recent_frames(self.run.model.background_frames))
            self.memory.discard_pending()
        due = self.schedule.due(progress.agent_steps, learner.updates)
        if due:
            progress.learning(learner.updates)
        for _ in range(due):
            with progress.timer("sampling"):
                batch = self.memory.sample(self.run.algo.batch_size)
            with progress.timer("updating"):
                learner.update(batch)
        return due

    def absorb(self, collected: Collected) -> None:
        """Count what came in."""
        self.progress.add(collected)
        for number, episode in self.progress.new_episodes(collected):
            video = self.videos.film(number, episode, self.memory)
            self.trackers.episode(number, episode, self.progress.agent_steps, self.progress.clock.now(), video)

    def pause(self) -> None:
        """Bring the actors to rest and report what came of them; a loss that is not finite raises here, unsaved."""
        self.absorb(self.actors.pause())
        self.report()

    def evaluate(self) -> None:
        """Play an evaluation while the clock and the actors stand still."""
        progress, evaluator = self.progress, self.evaluator
        self.absorb(self.actors.pause())
        with progress.clock.stopped():
            episodes = evaluator.play(progress.agent_steps, give_up=self.stop.is_asked)
        self.actors.proceed()
        if episodes:
            self.trackers.evaluation(evaluator.count, episodes, progress.agent_steps, progress.clock.now())
            self.evaluated = evaluation_metrics(episodes)
            if self.run.stop.on == "eval":
                self.keep_if_best(evaluator.mean)

    def report(self) -> None:
        """Tell the trackers where the run stands, the newest evaluation included once."""
        progress = self.progress
        self.presence.check()
        progress.warn_busy(self.learner_threads.adapt())
        metrics = progress.metrics(self.learner.stats(), self.learner.updates)
        metrics = {**metrics, **times(self.device.type, progress.timer.seconds, self.actors.seconds), **self.evaluated}
        self.evaluated = {}
        self.trackers.report(metrics, progress.agent_steps, progress.clock.now())
        returns = progress.returns
        if self.run.stop.on == "train" and (returns.full or returns.count >= FIRST_GAMES):
            self.keep_if_best(returns.mean, provisional=not returns.full)

    def keep_if_best(self, mean: float | None, provisional: bool = False) -> None:
        """Keep the network as it is, to be played, if no ``mean`` return was as high before."""
        if mean is None or not self.checkpoints.is_best(mean, provisional):
            return
        weights = self.learner.network.state_dict()
        # The learner's own look at what is not finite may lie some updates back.
        if all(w.isfinite().all() for w in weights.values()):
            facts = {"agent_steps": self.progress.agent_steps, "return_mean": mean}
            state = {"learner": {"network": weights}, "progress": facts, "config": self.config}
            self.checkpoints.save_best(state, mean, provisional)

    def snapshot(self) -> State:
        """All that the run needs to go on; the actors must be at rest."""
        self.videos.finish()  # those that the files name
        return {
            "config": self.config,
            "learner": self.learner.state_dict(),
            "progress": self.progress.state_dict(),
            "evaluation": self.evaluator.state_dict(),
            "checkpoints": self.checkpoints.state_dict(),
            "learning_start": {"steps": self.start.steps, "updates": self.start.updates},
            "replay": self.memory.state_dict() if self.run.keeps_memory else None,
            "actors": self.actors.state_dict(),
            "random": seeding.state_dict(),
            "files": file_sizes(self.folder),
        }
