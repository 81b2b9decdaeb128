"""A run: its parts, made in order or restored from a checkpoint, and what the training loop does with them."""

from __future__ import annotations

import contextlib
import logging
import textwrap
from collections.abc import Mapping

import torch

from dqnspeed.actors import ActorArguments, Actors, Collected, make_actors
from dqnspeed.algorithms import Learner, make_buffer, make_learner
from dqnspeed.algorithms.memory_estimate import buffer_device
from dqnspeed.buffers import Buffer
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.execution.malloc import keep_memory
from dqnspeed.execution.precision import set_precision
from dqnspeed.execution.threads import LearnerThreads, set_threads
from dqnspeed.networks.base import Network
from dqnspeed.system import machine, seeding
from dqnspeed.system.signals import StopSignals
from dqnspeed.system.startup import startup
from dqnspeed.tracking import Callback, Callbacks, make_trackers
from dqnspeed.tracking.files import EpisodesFile, MetricsFile, file_sizes, shorten, time_logged
from dqnspeed.tracking.metrics import times
from dqnspeed.tracking.run_folder import CHECKPOINTS, EVALUATING, METRICS
from dqnspeed.tracking.terminal import make_progress
from dqnspeed.tracking.video import EpisodeVideos
from dqnspeed.training.checkpoint import Checkpoints
from dqnspeed.training.evaluation import Evaluator, evaluation_metrics
from dqnspeed.training.progress import Progress
from dqnspeed.training.request import RunRequest
from dqnspeed.training.schedule import LearningStart, StopRule, UpdateSchedule, make_schedule
from dqnspeed.training.state_file import State
from dqnspeed.training.updates import Updates, make_updates

log = logging.getLogger(__name__)

NAME_LENGTH = 120  # longest label in the name for tracking services
MIN_EPISODES = 10  # training episodes before a provisional best checkpoint


class Run:
    """One training run.

    The constructor makes what learns, measures and records; :meth:`start_parts` adds the buffer and the actors, and
    calls the callbacks. Everything is closed by ``resources``.

    Args:
        state: checkpoint to resume from; empty if the run starts again from its first step; ``None`` for a new run.
    """

    buffer: Buffer
    actors: Actors
    schedule: UpdateSchedule
    update: Updates

    def __init__(self, request: RunRequest, state: State | None, signals: StopSignals, resources: contextlib.ExitStack):
        config, spec = request.config, request.spec
        self.request, self.config, self.options, self.folder = request, config, request.options, request.folder
        self.label, self.group = request.label or config.experiment.name, request.group
        self.name = f"{textwrap.shorten(self.label, NAME_LENGTH, placeholder=' …')}, seed {config.seed}"
        self._resources, self._state = resources, state
        self.device = machine.pick_device(config.device)
        self.threads = LearnerThreads(config, self.device)
        begun_again = state is not None and (not state or bool(state["progress"]["begun_again"]))
        self.progress = Progress(config, request.benchmark, begun_again)
        self.stop = StopRule(config.stop, signals)
        self.learner: Learner = make_learner(config, spec, self.device)
        self.evaluator = Evaluator(config, spec, self.learner.network, self.device)
        resources.callback(self.evaluator.close)
        self.videos = EpisodeVideos(self.folder, config, spec)
        resources.callback(self.videos.close)
        self.checkpoints = Checkpoints(self.folder / CHECKPOINTS, config.checkpoint, config.stop.measure)
        self.learning_start = LearningStart(config.algo.learning_starts, updates=0)
        if state:
            self._load(state)
        self.resumed_at = None if state is None else self.agent_steps
        self.callbacks = Callbacks(self._make_callbacks())
        self._evaluated: Mapping[str, float] = {}  # metrics of an evaluation that is not yet reported

    # State, as callbacks see it

    @property
    def network(self) -> Network:
        return self.learner.network

    @property
    def agent_steps(self) -> int:
        return self.progress.agent_steps

    @property
    def updates(self) -> int:
        return self.learner.updates

    @property
    def seconds(self) -> float:
        return self.progress.clock.now()

    @property
    def return_mean(self) -> float | None:
        return self.evaluator.mean if self.config.stop.on == "eval" else self.progress.returns.mean

    def end(self, reason: str) -> None:
        self.stop.end(reason)

    # Parts

    def start_parts(self) -> None:
        """Make or restore the buffer and the actors, and start the callbacks."""
        config, spec, state, progress = self.config, self.request.spec, self._state, self.progress
        self._state = None  # may take half of the machine's memory
        if state is not None:
            self._shorten_files(state)
        self.callbacks.on_training_start(self)
        self.callbacks.check()
        self.buffer = make_buffer(config, spec, buffer_device(config, spec))
        self._resources.callback(self.buffer.close)
        self.learner.attach(self.buffer)
        if state:
            self._load_buffer(state.pop("replay"))
        actors, segment = (state["actors"] if state else None), len(progress.resumed_at)
        startup.switch("actors")
        self.actors = make_actors(
            ActorArguments(config, spec, self.learner.network, self.buffer, self.device, actors, segment)
        )
        self._resources.callback(self.actors.close)
        with seeding.preserve(), startup.within("compilation"):
            self.learner.warm_up(self.buffer.blank(config.algo.batch_size))
        if state:
            seeding.load_state_dict(state["random"])
        self.schedule = make_schedule(config, self.buffer, self.learning_start, self.agent_steps)
        self.update = make_updates(config, self.learner, self.buffer, progress.timer)
        progress.replay_device = str(self.buffer.storage.device)
        progress.acting, progress.execution = self.actors.how, self.update.how
        progress.warn_busy(self.threads.warning())

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
        self.learning_start = LearningStart(**state["learning_start"])

    def _load_buffer(self, stored: State | None) -> None:
        if stored:
            self.buffer.load_state_dict(stored)
            return
        self.buffer.resume_empty(self.updates)
        steps = self.config.algo.learning_starts
        self.learning_start = LearningStart(self.agent_steps + steps, self.updates)
        log.info(
            "the replay was not saved (checkpoint.replay=false): it is filled anew for %s agent steps before learning "
            "continues", f"{steps:,}",
        )  # fmt: skip

    def _make_callbacks(self) -> list[Callback]:
        # The terminal comes first, since the end of other trackers may take long and be interrupted.
        progress = make_progress(self.config, self.label)
        return [progress, MetricsFile(), EpisodesFile(), *make_trackers(self.config.tracking), *self.request.callbacks]

    def _shorten_files(self, state: State) -> None:
        """Remove what a killed run recorded after its checkpoint, and count the time that was lost."""
        sizes: Mapping[str, int] = state["files"] if state else {}
        clocks = dict[str, float]()
        size = sizes.get(METRICS, 0)
        logged, evaluated = time_logged(self.folder, size), time_logged(self.folder, size, EVALUATING) or 0.0
        if not state:
            self.progress.lost_s = logged or 0.0  # a run that starts again has its whole time
        elif self.progress.count_lost(logged, evaluated, self.updates):
            clocks = {"time": self.seconds, EVALUATING: self.progress.eval_clock.now()}
        shorten(self.folder, sizes, clocks)

    # Steps of the loop

    def is_over(self) -> bool:
        """Whether the run is solved, has met a limit, or a callback raised."""
        return self.callbacks.error is not None or self.stop.holds(self.progress, self.evaluator.mean)

    def step_limit(self) -> float:
        """Agent steps at which the actors must wait for the learner."""
        return min(self.schedule.limit(self.updates), self.stop.max_steps)

    def learn(self) -> int:
        """Do the updates that are due; returns their number."""
        learner, progress = self.learner, self.progress
        if not learner.started:
            if progress.agent_steps >= self.learning_start.steps:
                learner.on_training_start(self.buffer.storage.recent_frames(self.config.model.background_frames))
            self.buffer.discard_pending()
        due = self.schedule.due(progress.agent_steps, learner.updates)
        self.update.do(due)
        if due:
            progress.learnt(learner.updates, self.update.samples)
            self.callbacks.call("on_update", self)
        return due

    def add(self, collected: Collected) -> None:
        """Count new experience, and record the episodes that ended."""
        self.progress.add(collected)
        for number, episode in self.progress.new_episodes(collected):
            video = self.videos.record(number, episode, self.buffer)
            self.callbacks.call("on_episode_end", self, number, episode, video)

    def pause(self) -> None:
        """Pause the actors and report; a loss that is not finite raises here, before anything is saved."""
        self.add(self.actors.pause())
        self.report()

    def evaluate(self) -> None:
        """Play an evaluation, while the training clock and the actors stand still."""
        progress, evaluator = self.progress, self.evaluator
        self.add(self.actors.pause())
        with progress.evaluating():
            episodes = evaluator.play(progress.agent_steps, give_up=lambda: self.stop.cuts_short(progress))
        self.actors.resume()
        if episodes:
            self._evaluated = evaluation_metrics(episodes)
            self.callbacks.call("on_evaluation", self, self._evaluated)
            if self.config.stop.on == "eval":
                self._save_if_best(evaluator.mean)

    def report(self) -> None:
        """Send metrics to the callbacks; metrics of an evaluation once."""
        progress, returns = self.progress, self.progress.returns
        progress.warn_busy(self.threads.adapt())
        callbacks = {"callbacks": sum(self.callbacks.seconds.values())}
        metrics = {
            **progress.metrics(self.learner.stats(), self.updates),
            **times(self.device.type, progress.timer.seconds, self.actors.seconds, callbacks),
            **self.actors.metrics(),
            **self._evaluated,
        }
        self._evaluated = {}
        if self.device.type == "cuda":
            metrics["perf/gpu_mib"] = torch.cuda.memory_allocated(self.device) / 2**20
        self.callbacks.call("on_report", self, metrics)
        if self.config.stop.on != "eval" and (returns.full or returns.count >= MIN_EPISODES):
            self._save_if_best(returns.mean, provisional=not returns.full)

    # Checkpoints

    def snapshot(self) -> State:
        """Everything that the run needs to resume; the actors must be paused."""
        self.videos.finish()  # the files name them
        return {
            "config": self.options,
            "learner": self.learner.state_dict(),
            "progress": self.progress.state_dict(),
            "evaluation": self.evaluator.state_dict(),
            "checkpoints": self.checkpoints.state_dict(),
            "learning_start": {"steps": self.learning_start.steps, "updates": self.learning_start.updates},
            "replay": self.buffer.state_dict() if self.config.keeps_memory else None,
            "actors": self.actors.state_dict(),
            "random": seeding.state_dict(),
            "files": file_sizes(self.folder),
        }

    def save_periodic(self) -> None:
        """Save a checkpoint that the run can be resumed from, while the actors wait."""
        self.pause()
        path = self.checkpoints.save_periodic(self.snapshot(), self.agent_steps)
        self.actors.resume()
        if path is not None:
            self.callbacks.call("on_checkpoint", self, path)

    def save_final(self) -> None:
        """Save the checkpoint of the end; the actors must be paused, or none left."""
        if self.config.checkpoint.final and (path := self.checkpoints.save_final(self.snapshot())):
            self.callbacks.call("on_checkpoint", self, path)

    def _save_if_best(self, mean: float | None, provisional: bool = False) -> None:
        """Save the network as ``best`` if ``mean`` return is the highest so far."""
        if mean is None or not self.checkpoints.is_best(mean, provisional):
            return
        weights = self.network.state_dict()
        # The learner's last check for finite weights may be some updates old.
        if all(w.isfinite().all() for w in weights.values()):
            facts = {"agent_steps": self.agent_steps, "return_mean": mean}
            state = {"learner": {"network": weights}, "progress": facts, "config": self.options}
            if path := self.checkpoints.save_best(state, mean, provisional):
                self.callbacks.call("on_checkpoint", self, path)


def prepare_process(config: RunConfig) -> None:
    """Reset peak memory, seed everything, and set torch's threads."""
    machine.reset_peak_rss()
    machine.reset_peak_gpu()
    seeding.seed_everything(config.seed)
    set_threads(config)
    set_precision(config.execution)
    keep_memory(config.execution)
    if config.execution.compile:
        torch.compiler.reset()  # after some runs in one process, its limit of versions of a function would be reached
