"""The one training loop: collect, store, learn, report, save.

It uses its parts by their interfaces: actors collect into a buffer, the schedule says when updates are due, the buffer
gives batches and the learner takes them. A replay, the queue of A3C, the rollouts of PPO and the single transitions of
tabular Q-learning are all memories.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dqnspeed.actors import Collected
from dqnspeed.actors.remote import NoActorsError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.system import atomic, machine, signing
from dqnspeed.system.signals import StopSignals
from dqnspeed.tracking.metrics import times
from dqnspeed.tracking.run_folder import BEGUN, CONFIG, SUMMARY
from dqnspeed.training.checkpoint import state_to_resume
from dqnspeed.training.components import Acting, Learning, Plan, prepare_process, snapshot
from dqnspeed.training.evaluation import evaluation_metrics
from dqnspeed.training.folder_lock import locked_folder
from dqnspeed.training.schedule import Prune
from dqnspeed.training.summary import begun
from dqnspeed.training.updates import make_updates

log = logging.getLogger(__name__)

FIRST_GAMES = 10  # training games that count before a provisional best checkpoint


def train(
    run: RunConfig,
    spec: EnvSpec,
    folder: Path,
    config: Mapping[str, Any],
    group: str | None = None,
    resume: bool = False,
    label: str | None = None,
    again: bool = False,
    benchmark: bool = True,
    prune: Prune | None = None,
    remember: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Train one agent in ``folder`` and return its summary, with the ``signal`` that came if one did.

    Args:
        run: the checked configuration; ``spec``: the shapes of its environment.
        config: the same configuration as plain data, for the trackers; ``group`` names the sweep it belongs to.
        resume: continue the run in ``folder`` from its newest checkpoint; from its start if it was killed before the
            first was due.
        label: the run's name, by default that of its rung.
        again: where it is to be resumed and left no checkpoint, start again, however long it lasted.
        benchmark: the run has the machine for itself, so that its times can be compared.
        prune: asked at every report whether to end the run as an unpromising one.
        remember: called once nothing hinders the run from being resumed, before its folder is changed.

    Raises:
        ConfigError: the folder holds another run already; or the run to be resumed is still running, or left no
            checkpoint.
        ActorError: an actor process died, hung or raised.
        NotFiniteError: a loss or a Q-value was not finite.
        CaptureError: a CUDA graph that was asked for cannot be captured. In all three cases the summary has been
            written.
    """
    prepare_process(run)
    with StopSignals() as signals, contextlib.ExitStack() as resources:
        resources.enter_context(locked_folder(folder, resume))
        state = state_to_resume(folder, run.checkpoint, again) if resume else None
        if remember is not None:
            remember()
        plan = Plan(run, spec, folder, config, label or run.experiment.name, group, state, benchmark, prune)
        save_start(plan)
        learning = Learning(plan, signals, resources)
        error: BaseException | None = None
        try:
            training = Training(learning, Acting(learning, resources))
            with contextlib.suppress(OSError):
                (folder / SUMMARY).unlink(missing_ok=True)  # of the run until it was resumed
            try:
                training.loop()
            except NoActorsError:
                training.save_final()
                raise
        except BaseException as raised:
            error = raised
            raise
        finally:
            summary = learning.close(error)
    if signals.received is not None:
        summary["signal"] = signals.received.name  # it may have come after the run had ended by itself
    return summary


def save_start(plan: Plan) -> None:
    """Save a copy of the configuration atomically, which Hydra's own is not, and signed, and what the summary will say
    of it."""
    start = {**begun(plan.run, plan.label), "begun_again": plan.begun_again}
    files = ((signing.write, CONFIG, plan.config), (atomic.write_json, BEGUN, start))
    for write, name, content in files:
        try:
            write(plan.folder / name, content)
        except OSError as error:
            log.warning("%s could not be written, training continues: %s", plan.folder / name, error)


class Training:
    """The loop over the parts of a run."""

    def __init__(self, learning: Learning, acting: Acting):
        self.learning, self.acting = learning, acting
        self.run, self.learner, self.progress, self.stop = (
            learning.run, learning.learner, learning.progress, learning.stop,
        )  # fmt: skip
        self.buffer, self.actors, self.schedule = acting.buffer, acting.actors, acting.schedule
        self.updates = make_updates(self.run, self.learner, self.buffer, self.progress.timer)
        self.progress.execution = self.updates.how
        self.evaluator, self.checkpoints = learning.evaluator, learning.checkpoints
        self.trackers, self.videos, self.threads = learning.trackers, learning.videos, learning.threads
        self.evaluated: Mapping[str, float] = {}  # metrics of an evaluation not yet reported

    def loop(self) -> None:
        learner, actors, progress = self.learner, self.actors, self.progress
        self.absorb(actors.begin())
        progress.start()
        if self.evaluator.is_due(progress.agent_steps):  # the one that a signal cut short
            self.evaluate()
        while not self.stop.holds(progress, self.evaluator.mean):
            actors.dispatch()
            learnt = self.learn()
            limit = min(self.schedule.limit(learner.updates), self.stop.max_steps)
            self.absorb(actors.collect(limit, wait=not learnt))
            if self.evaluator.is_due(progress.agent_steps):
                self.evaluate()
            if self.checkpoints.is_due():
                self.pause()
                self.checkpoints.save_periodic(snapshot(self.learning, self.acting), progress.agent_steps)
                actors.proceed()
            elif progress.report_is_due():
                self.report()
        self.pause()
        with progress.clock.stopped():  # no step is made meanwhile
            self.save_final()
            self.videos.finish()

    def save_final(self) -> None:
        """Save all that the run needs to resume; the actors must be paused, or none left."""
        if self.checkpoints.keeps_final:
            self.checkpoints.save_final(snapshot(self.learning, self.acting))

    def learn(self) -> int:
        """Do the updates that are due; returns their number."""
        learner, progress = self.learner, self.progress
        if not learner.started:
            if progress.agent_steps >= self.learning.start.steps:
                learner.on_training_start(self.buffer.recent_frames(self.run.model.background_frames))
            self.buffer.discard_pending()
        due = self.schedule.due(progress.agent_steps, learner.updates)
        self.updates.do(due)
        if due:
            progress.learnt(learner.updates, self.updates.samples)
        return due

    def absorb(self, collected: Collected) -> None:
        """Count new experience; record and track finished games."""
        self.progress.add(collected)
        for number, episode in self.progress.new_episodes(collected):
            video = self.videos.record(number, episode, self.buffer)
            self.trackers.episode(number, episode, self.progress.agent_steps, self.progress.clock.now(), video)

    def pause(self) -> None:
        """Pause the actors and report; a loss that is not finite raises here, before anything is saved."""
        self.absorb(self.actors.pause())
        self.report()

    def evaluate(self) -> None:
        """Play an evaluation while the training clock and the actors stand still."""
        progress, evaluator = self.progress, self.evaluator
        self.absorb(self.actors.pause())
        with progress.evaluating():
            episodes = evaluator.play(progress.agent_steps, give_up=lambda: self.stop.cuts_short(progress))
        self.actors.proceed()
        if episodes:
            self.evaluated = evaluation_metrics(episodes)
            if self.run.stop.on == "eval":
                self.save_if_best(evaluator.mean)

    def report(self) -> None:
        """Send metrics to the trackers, those of the newest evaluation once."""
        progress = self.progress
        progress.warn_busy(self.threads.adapt())
        metrics = progress.metrics(self.learner.stats(), self.learner.updates)
        metrics = {
            **metrics,
            **times(self.learning.device.type, progress.timer.seconds, self.actors.seconds),
            **self.actors.metrics(),
            **machine.gpu_metrics(self.learning.device),
            **self.evaluated,
        }
        self.evaluated = {}
        self.trackers.report(metrics, progress.agent_steps, progress.clock.now())
        returns, prune = progress.returns, self.learning.plan.prune
        evaluated = self.run.stop.on == "eval"
        mean = self.evaluator.mean if evaluated else returns.mean
        if prune is not None and mean is not None and prune(mean, progress.clock.now()):
            self.stop.prune()
        if not evaluated and (returns.full or returns.count >= FIRST_GAMES):
            self.save_if_best(returns.mean, provisional=not returns.full)

    def save_if_best(self, mean: float | None, provisional: bool = False) -> None:
        """Save the network as ``best`` if ``mean`` return is the highest so far."""
        if mean is None or not self.checkpoints.is_best(mean, provisional):
            return
        weights = self.learner.network.state_dict()
        # The learner's last check for finite weights may be some updates old.
        if all(w.isfinite().all() for w in weights.values()):
            facts = {"agent_steps": self.progress.agent_steps, "return_mean": mean}
            state = {"learner": {"network": weights}, "progress": facts, "config": self.learning.plan.config}
            if file := self.checkpoints.save_best(state, mean, provisional):
                self.trackers.best(file, mean, self.progress.agent_steps, self.progress.clock.now())
