"""One training run: makes or restores its parts, and defines the steps of the training loop."""

from __future__ import annotations

import contextlib
import logging
import textwrap
from collections.abc import Mapping

import torch

from dqnspeed.actors import ActorArguments, Actors, Collected, make_actors
from dqnspeed.algorithms import Learner, make_buffer, make_learner
from dqnspeed.algorithms.learner import GradientLearner
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
from dqnspeed.tracking.live_page import LivePage
from dqnspeed.tracking.metrics import times
from dqnspeed.tracking.run_folder import CHECKPOINTS, EVALUATING, METRICS
from dqnspeed.tracking.terminal import is_notebook, make_progress
from dqnspeed.tracking.time_left import TimeLeft, earlier_times
from dqnspeed.tracking.trackers import public_options
from dqnspeed.tracking.video import EpisodeVideos
from dqnspeed.training.checkpoint import Checkpoints
from dqnspeed.training.evaluation import Evaluator, evaluation_metrics
from dqnspeed.training.initial_weights import initial_weights
from dqnspeed.training.progress import Progress
from dqnspeed.training.request import RunRequest
from dqnspeed.training.schedule import LearningStart, UpdateSchedule, make_schedule
from dqnspeed.training.state_file import State
from dqnspeed.training.stop_rule import StopRule
from dqnspeed.training.updater import Updater, make_updater

log = logging.getLogger(__name__)

NAME_LENGTH = 120  # longest label in the run names of W&B and TensorBoard
MIN_EPISODES = 10  # training episodes before the first provisional best checkpoint


class Run:
    """One training run.

    The constructor makes the learner, the evaluator and the checkpoints, and restores their state. :meth:`start_parts`
    adds the callbacks, the buffer and the actors. All parts are closed by ``resources``.

    Args:
        state: checkpoint to resume from; ``{}`` for a run without one, ``None`` for a new run.
    """

    buffer: Buffer
    actors: Actors
    schedule: UpdateSchedule
    updater: Updater

    def __init__(self, request: RunRequest, state: State | None, signals: StopSignals, resources: contextlib.ExitStack):
        config, spec = request.config, request.spec
        self.request, self.config, self.options, self.folder = request, config, request.options, request.folder
        self.label, self.group = request.label or config.experiment.name, request.group
        self.name = f"{textwrap.shorten(self.label, NAME_LENGTH, placeholder=' …')}, seed {config.seed}"
        self._resources, self._state = resources, state
        self.device = machine.pick_device(config.device)
        self.threads = LearnerThreads(config, self.device)
        begun_again = state is not None and (not state or bool(state["progress"]["begun_again"]))
        # The games of a live page take time from the training.
        self.progress = Progress(config, request.benchmark and not config.live, begun_again)
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
        elif config.init is not None:
            self.learner.start_from(initial_weights(config, self.learner.network))
        self.resumed_at = None if state is None else self.agent_steps
        self.callbacks = Callbacks(self._make_callbacks())
        self._evaluated: Mapping[str, float] = {}  # metrics of an evaluation, for the next report

    # The interface TrainingState, for callbacks

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
        """Start the callbacks, make or restore the buffer and the actors, and warm up the learner."""
        config, spec, state, progress = self.config, self.request.spec, self._state, self.progress
        self._state = None  # a saved buffer may take half of the machine's memory
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
        self.updater = make_updater(config, self.learner, self.buffer, progress.timer)
        progress.replay_device = str(self.buffer.storage.device)
        progress.acting, progress.execution = self.actors.how, self.updater.how
        progress.warn_busy(self.threads.warning())

    def _load(self, state: State) -> None:
        try:
            self.learner.load_state_dict(state["learner"])
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"resume={self.folder}: its checkpoint is of another network. Did the environment or a plugin change?"
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
            "the checkpoint has no replay buffer (checkpoint.replay=false): learning continues after %s agent "
            "steps", f"{steps:,}",
        )  # fmt: skip

    def _make_callbacks(self) -> list[Callback]:
        times = list[float]()
        if self.config.stop.on == "train" and (self.config.live or self.config.tracking.progress != "off"):
            times = earlier_times(self.options, machine.describe(self.device))
        # The terminal comes first: other trackers may take long to finish, or be interrupted.
        time_left = TimeLeft(self.config.stop, times)
        progress = make_progress(self.config, self.label, time_left)
        page = [LivePage(time_left, is_notebook())] if self.config.live else []
        for each in page:
            self._resources.callback(each.close)
        trackers = make_trackers(self.config.tracking)
        return [progress, MetricsFile(), EpisodesFile(), *page, *trackers, *self.request.callbacks]

    def _shorten_files(self, state: State) -> None:
        """Remove the records that a killed run made after its checkpoint, and add the lost time to the clock."""
        sizes: Mapping[str, int] = state["files"] if state else {}
        clocks = dict[str, float]()
        size = sizes.get(METRICS, 0)
        logged, evaluated = time_logged(self.folder, size), time_logged(self.folder, size, EVALUATING) or 0.0
        if not state:
            self.progress.lost_s = logged or 0.0  # after a restart all recorded time is lost
        elif self.progress.count_lost(logged, evaluated, self.updates):
            clocks = {"time": self.seconds, EVALUATING: self.progress.eval_clock.now()}
        shorten(self.folder, sizes, clocks)

    # Steps of the loop

    def is_over(self) -> bool:
        """Whether training must stop."""
        return self.callbacks.error is not None or self.stop.is_met(self.progress, self.evaluator.mean)

    def step_limit(self) -> float:
        """Total agent steps at which the actors must wait for the learner."""
        return min(self.schedule.limit(self.updates), self.stop.max_steps)

    def learn(self) -> int:
        """Do the updates that are due; returns their number."""
        learner, progress = self.learner, self.progress
        if not learner.started:
            if progress.agent_steps >= self.learning_start.steps:
                learner.on_training_start(self.buffer.storage.recent_frames(self.config.model.background_frames))
            self.buffer.discard_pending()
        due = self.schedule.due(progress.agent_steps, learner.updates)
        if due and self.config.decay_seconds is not None and isinstance(learner, GradientLearner):
            learner.set_progress(progress.wall_time_s / self.config.decay_seconds)
        self.updater.run(due)
        if due:
            progress.learnt(learner.updates, self.updater.samples)
            self.callbacks.call("on_update", self)
        return due

    def add(self, collected: Collected) -> None:
        """Count new steps, and give finished episodes to the callbacks."""
        self.progress.add(collected)
        for number, episode in self.progress.new_episodes(collected):
            video = self.videos.record(number, episode, self.buffer)
            self.callbacks.call("on_episode_end", self, number, episode, video)

    def pause_and_report(self) -> None:
        """Pause the actors and report.

        Raises:
            NotFiniteError: before weights that are not finite are saved.
        """
        self.add(self.actors.pause())
        self.report()

    def evaluate(self) -> None:
        """Evaluate while the training clock and the actors are paused."""
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
        """Send metrics to the callbacks; metrics of an evaluation are sent once."""
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
        """Contents of a checkpoint; the actors must be paused.

        Rollouts and queues are always saved, a replay buffer only with ``checkpoint.replay=true``.
        """
        self.videos.finish()  # episodes.csv names the finished videos
        return {
            "config": self.options,
            "learner": self.learner.state_dict(),
            "progress": self.progress.state_dict(),
            "evaluation": self.evaluator.state_dict(),
            "checkpoints": self.checkpoints.state_dict(),
            "learning_start": {"steps": self.learning_start.steps, "updates": self.learning_start.updates},
            "replay": self.buffer.state_dict() if self.config.saves_buffer else None,
            "actors": self.actors.state_dict(),
            "random": seeding.state_dict(),
            "files": file_sizes(self.folder),
        }

    def save_periodic(self) -> None:
        """Save a checkpoint while the actors are paused."""
        self.pause_and_report()
        path = self.checkpoints.save_periodic(self.snapshot(), self.agent_steps)
        self.actors.resume()
        if path is not None:
            self.callbacks.call("on_checkpoint", self, path)

    def save_final(self) -> None:
        """Save the final checkpoint; the actors must be paused or lost."""
        if self.config.checkpoint.final and (path := self.checkpoints.save_final(self.snapshot())):
            self.callbacks.call("on_checkpoint", self, path)

    def _save_if_best(self, mean: float | None, provisional: bool = False) -> None:
        """Save the network as ``best`` if ``mean`` return is the highest so far."""
        if mean is None or not self.checkpoints.is_best(mean, provisional):
            return
        weights = self.network.state_dict()
        # The learner last checked its weights some updates ago.
        if all(w.isfinite().all() for w in weights.values()):
            facts = {"agent_steps": self.agent_steps, "return_mean": mean}
            state = {"learner": {"network": weights}, "progress": facts, "config": public_options(self.options)}
            if path := self.checkpoints.save_best(state, mean, provisional):
                self.callbacks.call("on_checkpoint", self, path)


def prepare_process(config: RunConfig) -> None:
    """Set what belongs to the process: seeds, threads, precision, memory statistics and malloc."""
    machine.reset_peak_rss()
    machine.reset_peak_gpu()
    seeding.seed_everything(config.seed)
    set_threads(config)
    set_precision(config.execution)
    keep_memory(config.execution)
    if config.execution.compile:
        torch.compiler.reset()  # else several runs in one process reach torch's recompile limit
