"""The one training loop: collect, store, learn, report.

It knows its parts by what they do, not by which option made them. A learner that is not replay-based fits in
the same place: its actors collect, its schedule says when an update is due, its learner takes what they brought.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dqnspeed import machine
from dqnspeed.actors import ActorError, Actors, make_actors, replay_lock
from dqnspeed.checkpoint import Checkpoints
from dqnspeed.config import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.learners import DQN, set_threads
from dqnspeed.replay import UniformReplay, make_replay
from dqnspeed.schedule import StopRule, make_schedule
from dqnspeed.signals import StopSignals
from dqnspeed.summary import Progress, summarize, write_summary
from dqnspeed.tracking import Trackers, make_trackers
from dqnspeed.tracking.metrics import times


def train(
    run: RunConfig, spec: EnvSpec, folder: Path, config: Mapping[str, Any], group: str | None = None
) -> dict[str, Any]:
    """Train one agent in ``folder`` and return its summary.

    Args:
        run: the checked configuration; ``spec``: the shapes of its environment.
        config: the same configuration as plain data, for the trackers; ``group`` names the sweep it belongs to.

    Raises:
        ConfigError: the folder holds another run already.
        ActorError: an actor process died, hung or raised.
        NotFiniteError: a loss or a Q-value was not finite. In both cases the summary has been written.
    """
    machine.reset_peak_rss()
    torch.manual_seed(run.seed)
    np.random.seed(run.seed)  # noqa: NPY002  for environments of a user's own that draw from it
    set_threads(run)
    device = machine.pick_device(run.device)
    with StopSignals() as signals, contextlib.ExitStack() as resources:
        progress, stop = Progress(run), StopRule(run.stop, signals)
        learner = DQN(run, spec, device)
        trackers = make_trackers(run, folder, config, group)
        error: BaseException | None = None
        try:
            lock = replay_lock(run)
            replay = make_replay(run, spec, lock)
            resources.callback(replay.close)
            actors = make_actors(run, spec, learner.network, replay, lock, device)
            resources.callback(actors.close)
            checkpoints = Checkpoints(folder / "checkpoints", run.checkpoint, run, spec)
            try:
                _loop(run, learner, replay, actors, trackers, checkpoints, progress, stop)
            except ActorError:
                if not stop.by_signal():  # a SIGTERM to the whole group ends the actors before the loop looks
                    raise
            checkpoints.at_end(learner.network, progress.returns.mean, progress.agent_steps)
        except BaseException as raised:
            error = raised
            raise
        finally:
            summary = summarize(run, progress, device, learner.updates, stop.reason, error)
            write_summary(folder / "summary.json", summary)
            trackers.close(summary)
    return summary


def _loop(
    run: RunConfig,
    learner: DQN,
    replay: UniformReplay,
    actors: Actors,
    trackers: Trackers,
    checkpoints: Checkpoints,
    progress: Progress,
    stop: StopRule,
) -> None:
    schedule, batch_size = make_schedule(run), run.algo.batch_size
    timer, clock = progress.timer, progress.clock

    def report() -> None:
        metrics = progress.metrics(learner.stats(), learner.updates) | times(timer.seconds, actors.seconds)
        trackers.report(metrics, progress.agent_steps, clock.now())

    actors.begin()
    progress.start()
    while not stop.holds(progress):
        actors.dispatch()
        due = schedule.due(progress.agent_steps, learner.updates)
        if due and not learner.updates:
            learner.begin(replay.recent_frames(run.model.background_frames))
            progress.learning_started()
        for _ in range(due):
            with timer("sampling"):
                batch = replay.sample(batch_size)
            with timer("updating"):
                learner.update(batch)
        collected = actors.collect(learner.updates, wait=not due)
        progress.add(collected)
        for number, episode in progress.new_episodes(collected):
            trackers.episode(number, episode, progress.agent_steps, clock.now())
            checkpoints.at_mean(learner.network, progress.returns.mean, number, progress.agent_steps)
        if progress.report_is_due():
            report()
            checkpoints.at_time(learner.network, clock.now(), progress.returns.mean, progress.agent_steps)
    report()
