"""Findings on a few updates of a run: gradients and speed."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator

from dqnspeed.actors import ActorArguments, make_actors
from dqnspeed.algorithms import make_buffer, make_learner
from dqnspeed.algorithms.base import Learner
from dqnspeed.algorithms.memory_estimate import buffer_device
from dqnspeed.buffers import Buffer
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.doctor.checkup import LOOK, OK, WRONG, Finding, first_problem, watchdog
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.malloc import keep_memory
from dqnspeed.execution.precision import set_precision
from dqnspeed.execution.threads import set_threads
from dqnspeed.exploration.base import Exploration
from dqnspeed.system import machine
from dqnspeed.training.schedule import LearningStart, make_schedule

SPEED_STEPS, SPEED_S, NUM_UPDATES = 3000, 10.0, 5
BOOK_STEPS = 1_000_000  # of the book's baseline on Pong


def check_training(run: RunConfig, spec: EnvSpec) -> Iterator[Finding]:
    """Collect steps as the run would and do a few updates; findings on gradients and on the run's duration."""
    set_threads(run)
    set_precision(run.execution)
    keep_memory(run.execution)
    # Unclipped gradients, and a small replay.
    algo = dataclasses.replace(run.algo, max_grad_norm=None)
    buffer_size = min(run.replay.buffer_size, max(20_000, 2 * run.algo.batch_size))
    first = dataclasses.replace(run, algo=algo, replay=dataclasses.replace(run.replay, buffer_size=buffer_size))
    # The speed is measured with the final exploration; the batch has the first, random actions.
    last = dataclasses.replace(first, exploration=typed(run.exploration, Exploration).settled())
    learner = make_learner(first, spec, machine.pick_device(run.device))
    with contextlib.closing(make_buffer(last, spec, buffer_device(last, spec))) as buffer:
        steps_per_second = _collect(last, spec, learner, buffer)
    with contextlib.closing(make_buffer(first, spec, buffer_device(first, spec))) as buffer:
        _collect(first, spec, learner, buffer)
        try:
            batch = buffer.sample(run.algo.batch_size)
        except LookupError:
            text = f"{steps_per_second:.1f} steps/s, too few for an update in {2 * SPEED_S:g} s"
            yield Finding(LOOK, "speed", text)
            return
        learner.on_training_start(buffer.storage.recent_frames(run.model.background_frames))
        learner.update(batch)
        yield from _gradients(learner, run.algo.max_grad_norm)
        begin = time.perf_counter()
        for _ in range(NUM_UPDATES):
            learner.update(buffer.sample(run.algo.batch_size) if run.has_replay else batch)
        learner.stats()  # waits for the device
        yield _duration(run, steps_per_second, NUM_UPDATES / (time.perf_counter() - begin))


def _collect(run: RunConfig, spec: EnvSpec, learner: Learner, buffer: Buffer) -> float:
    """Agent steps per second of the configured actors, which store enough for a batch if there is time."""
    schedule = make_schedule(run, buffer, LearningStart(0, 0))
    # Made outside the watchdog, because making many environments may take longer than its limit.
    actors = make_actors(ActorArguments(run, spec, learner.network, buffer, machine.pick_device(run.device)))
    steps, speed = 0, 0.0
    with contextlib.ExitStack() as resources:
        resources.callback(actors.close)
        beat: Callable[[], None] = lambda: None  # noqa: E731
        if not (run.parallelism.processes or run.parallelism.overlaps):  # other processes have their own time limit
            beat = resources.enter_context(watchdog(run, "training")).beat
        actors.start()
        begin, seconds = time.perf_counter(), 0.0
        while seconds <= 2 * SPEED_S and not (speed and schedule.due(steps, 0)):
            beat()
            actors.send()
            steps += actors.collect(schedule.limit(0) if not run.has_replay else math.inf, wait=True).agent_steps
            seconds = time.perf_counter() - begin
            if not speed and (steps >= SPEED_STEPS or seconds > SPEED_S):
                speed = steps / seconds
            if not speed:
                buffer.discard_pending()
        actors.pause()
    return speed


def _gradients(learner: Learner, max_grad_norm: float | None) -> Iterator[Finding]:
    norms = {name: float(p.grad.norm()) for name, p in learner.network.named_parameters() if p.grad is not None}
    if not norms:
        return  # a table
    layers = {name: norm for name, norm in norms.items() if "weight" in name}
    shown = ", ".join(f"{name.replace('.weight', '')} {norm:.2g}" for name, norm in layers.items())
    total = math.sqrt(sum(norm**2 for norm in norms.values()))
    dead = [name for name, norm in layers.items() if not norm]
    fix = "set algo.max_grad_norm=10, or" if max_grad_norm is None else f"clipped to {max_grad_norm:g};"
    yield first_problem(
        "gradients",
        f"norm {total:.3g} in one update; by layer: {shown}",
        (not math.isfinite(total), WRONG, "not finite: look for NaN or huge values in observations and rewards"),
        (bool(dead), WRONG, f"nothing reaches {', '.join(dead)}: constant input or dead units"),
        (total > 100, LOOK, f"large; {fix} scale rewards or observations"),
    )


def _duration(run: RunConfig, steps_per_second: float, updates_per_second: float) -> Finding:
    """The duration of the configured run, from the speeds of acting and learning."""
    if run.updates_per_step is None:
        text = f"{steps_per_second:,.0f} steps/s and at the same time {updates_per_second:,.1f} updates/s; "
        return Finding(OK, "speed", f"{text}{until_limit(run, steps_per_second)[1]} if none waits for the other")
    acting, learning = 1 / steps_per_second, run.updates_per_step / updates_per_second
    is_parallel = run.parallelism.processes or (run.parallelism.overlaps and run.has_replay)
    speed = 1 / (max(acting, learning) if is_parallel else acting + learning)
    hours, phrase = until_limit(run, speed)
    text = f"{steps_per_second:,.0f} steps/s without learning, {updates_per_second:,.1f} updates/s; "
    text += f"about {speed:,.0f} steps/s in all, {phrase}{', without evaluations' if run.eval.every_steps else ''}"
    slow = "learning" if learning > acting else "stepping the environments"
    return Finding(LOOK if hours > 24 else OK, "speed", text, f"most of the time goes into {slow}" if hours > 1 else "")


def until_limit(run: RunConfig, steps_per_second: float) -> tuple[float, str]:
    """Hours until the nearer limit of the run at this speed, and a phrase that names the limit."""
    minutes, max_steps = run.stop.max_minutes, run.stop.max_steps
    allowed = steps_per_second * minutes * 60 if minutes else math.inf
    if minutes and allowed < (max_steps or math.inf):
        unit = "minute" if minutes == 1 else "minutes"
        return minutes / 60, f"{allowed:,.0f} steps in {minutes:g} {unit} (stop.max_minutes)"
    steps = max_steps or BOOK_STEPS
    hours = steps / steps_per_second / 3600
    source = "stop.max_steps" if max_steps else "as many as the book's Pong"
    return hours, f"{hours:.1f} h for {steps:,} steps ({source})"
