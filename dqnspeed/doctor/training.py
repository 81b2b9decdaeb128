"""A few updates as the run would do them: gradients and speed."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator

from dqnspeed.actors import ActorArguments, Actors, make_actors
from dqnspeed.algorithms import make_buffer, make_learner
from dqnspeed.algorithms.base import Learner
from dqnspeed.algorithms.memory_estimate import buffer_device
from dqnspeed.buffers import Buffer
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.doctor.checkup import LOOK, OK, WRONG, Finding, watchdog
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.malloc import keep_memory
from dqnspeed.execution.precision import set_precision
from dqnspeed.execution.threads import set_threads
from dqnspeed.exploration.base import Exploration
from dqnspeed.system import machine
from dqnspeed.training.schedule import LearningStart, make_schedule

SPEED_STEPS, SPEED_S, UPDATES = 3000, 10.0, 5
BOOK_STEPS = 1_000_000  # what the book's baseline takes on Pong


def training(run: RunConfig, spec: EnvSpec) -> Iterator[Finding]:
    """Collect some steps as the run would, do a few updates, and yield findings on them and on the run's duration."""
    set_threads(run)
    set_precision(run.execution)
    keep_memory(run.execution)
    # Unclipped gradients, and a small replay.
    tried = dataclasses.replace(
        run,
        algo=dataclasses.replace(run.algo, max_grad_norm=None),
        replay=dataclasses.replace(
            run.replay, buffer_size=min(run.replay.buffer_size, max(20_000, 2 * run.algo.batch_size))
        ),
    )
    # The speed is measured with the final exploration; the batch is of the first, random actions.
    later = dataclasses.replace(tried, exploration=typed(run.exploration, Exploration).settled())
    device = machine.pick_device(run.device)
    learner = make_learner(tried, spec, device)
    with contextlib.closing(make_buffer(later, spec, buffer_device(later, spec))) as buffer:
        steps_s = _collect(later, spec, learner, buffer)
    with contextlib.closing(make_buffer(tried, spec, buffer_device(tried, spec))) as buffer:
        _collect(tried, spec, learner, buffer)
        try:
            batch = buffer.sample(run.algo.batch_size)
        except LookupError:
            yield Finding(LOOK, "speed", f"{steps_s:.1f} steps/s, too few for an update in {2 * SPEED_S:g} s")
            return
        frames = buffer.storage.recent_frames(run.model.background_frames)
        learner.on_training_start(frames)
        learner.update(batch)
        yield from _gradients(learner, run.algo.max_grad_norm)
        begin = time.perf_counter()
        for _ in range(UPDATES):
            learner.update(buffer.sample(run.algo.batch_size) if run.has_replay else batch)
        learner.stats()  # waits for the device
        yield _hours(run, steps_s, UPDATES / (time.perf_counter() - begin))


def _collect(run: RunConfig, spec: EnvSpec, learner: Learner, buffer: Buffer) -> float:
    """Agent steps per second of the configured actors, which store enough for a batch if there is time."""
    # Actors and workers in other processes have their own timeout.
    here = watchdog(run, "training") if not (run.parallelism.processes or run.parallelism.overlaps) else None
    # Made outside the watchdog: there may be many, and one has been made before.
    actors = make_actors(ActorArguments(run, spec, learner.network, buffer, machine.pick_device(run.device)))
    with here or contextlib.nullcontext():
        return _collected(run, actors, buffer, here.beat if here else lambda: None)


def _collected(run: RunConfig, actors: Actors, buffer: Buffer, beat: Callable[[], None]) -> float:
    schedule = make_schedule(run, buffer, LearningStart(0, 0))
    steps, speed = 0, 0.0
    try:
        actors.start()
        begin = time.perf_counter()
        while not speed or not schedule.due(steps, 0):
            beat()
            actors.send()
            steps += actors.collect(schedule.limit(0) if not run.has_replay else math.inf, wait=True).agent_steps
            seconds = time.perf_counter() - begin
            if not speed and (steps >= SPEED_STEPS or seconds > SPEED_S):
                speed = steps / seconds
            if not speed:
                buffer.discard_pending()
            if seconds > 2 * SPEED_S:
                break
        actors.pause()
    finally:
        actors.close()
    return speed


def _gradients(learner: Learner, clipped_at: float | None) -> Iterator[Finding]:
    norms = {name: float(p.grad.norm()) for name, p in learner.network.named_parameters() if p.grad is not None}
    if not norms:
        return  # a table
    by_layer = ", ".join(
        f"{name.replace('.weight', '')} {norm:.2g}" for name, norm in norms.items() if "weight" in name
    )
    total = math.sqrt(sum(norm**2 for norm in norms.values()))
    what = f"norm {total:.3g} in one update; by layer: {by_layer}"
    dead = [name for name, norm in norms.items() if norm == 0 and "weight" in name]
    if not math.isfinite(total):
        yield Finding(WRONG, "gradients", what, "not finite: look for NaN or huge values in observations and rewards")
    elif dead:
        yield Finding(WRONG, "gradients", what, f"nothing reaches {', '.join(dead)}: constant input or dead units")
    elif total > 100 and clipped_at is not None:
        yield Finding(LOOK, "gradients", what, f"large, and clipped to {clipped_at:g}; scale rewards or observations")
    elif total > 100:
        yield Finding(LOOK, "gradients", what, "large; set algo.max_grad_norm=10, or scale rewards and observations")
    else:
        yield Finding(OK, "gradients", what)


def _hours(run: RunConfig, steps_s: float, updates_s: float) -> Finding:
    """The duration of the configured run, from the speeds of acting and learning."""
    updates_per_step = run.updates_per_step
    if updates_per_step is None:
        what = f"{steps_s:,.0f} steps/s and, beside them, {updates_s:,.1f} updates/s; "
        return Finding(OK, "speed", f"{what}{until_limit(run, steps_s)[1]} if none waits for the other")
    acting, learning = 1 / steps_s, updates_per_step / updates_s
    together = run.parallelism.processes or (run.parallelism.overlaps and run.has_replay)
    speed = 1 / (max(acting, learning) if together else acting + learning)
    slow = "learning" if learning > acting else "stepping the environments"
    hours, until = until_limit(run, speed)
    what = (
        f"{steps_s:,.0f} steps/s without learning, {updates_s:,.1f} updates/s; about {speed:,.0f} steps/s in all, "
        f"{until}{', evaluations apart' if run.eval.every_steps else ''}"
    )
    return Finding(LOOK if hours > 24 else OK, "speed", what, f"most of the time goes into {slow}" if hours > 1 else "")


def until_limit(run: RunConfig, steps_per_second: float) -> tuple[float, str]:
    """The hours until the nearer limit of the run at this speed, and a phrase that says so."""
    stop = run.stop
    allowed = steps_per_second * stop.max_minutes * 60 if stop.max_minutes else math.inf
    if stop.max_minutes and allowed < (stop.max_steps or math.inf):
        minutes = f"{stop.max_minutes:g} minute{'' if stop.max_minutes == 1 else 's'}"
        return stop.max_minutes / 60, f"{allowed:,.0f} steps in {minutes} (stop.max_minutes)"
    steps = stop.max_steps or BOOK_STEPS
    hours = steps / steps_per_second / 3600
    which = "stop.max_steps" if stop.max_steps else "as many as the book's Pong"
    return hours, f"{hours:.1f} h for {steps:,} steps ({which})"
