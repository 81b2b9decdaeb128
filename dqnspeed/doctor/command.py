"""``python -m dqnspeed.doctor env=...``: finds out why an agent does not learn in an environment."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import torch

from dqnspeed import envs
from dqnspeed.actors import make_actors, memory_lock
from dqnspeed.algorithms import algorithm_of, check_fits, make_learner, make_memory
from dqnspeed.algorithms.base import Learner
from dqnspeed.algorithms.footprint import check_footprint
from dqnspeed.cli import compose
from dqnspeed.cli.app import run_app
from dqnspeed.cli.compose import CONF_DIR
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.config.combinations import untuned, unused
from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.schema import AlgoConfig, RunConfig
from dqnspeed.doctor.checkup import LOOK, OK, WRONG, Finding, examine, play_at_random, wrapper_order
from dqnspeed.envs import EnvSpec
from dqnspeed.envs.games import atari_game
from dqnspeed.execution.precision import check_execution
from dqnspeed.execution.threads import check_threads, set_threads
from dqnspeed.exploration.epsilon_greedy import exploration_of
from dqnspeed.memory import Memory
from dqnspeed.memory.buffers import layout_bytes
from dqnspeed.runs.schedule import LearningStart, make_schedule
from dqnspeed.system import atomic, machine
from dqnspeed.tracking.terminal import BOOK_STEPS
from dqnspeed.tracking.video import enlarge, picture

ABOUT = """Check an environment: a random policy plays it for a while, and a few updates are done.

One line a finding: ok, look (worth a look) or wrong (prevents learning), and what to do about it.
The exit code is 1 where something is wrong."""
PICTURES = (".png", ".jpg", ".jpeg", ".webp")
SPEED_STEPS, SPEED_S, UPDATES = 3000, 10.0, 5
LARGE_ERROR = 20  # of a value, for rewards of size 1


@dataclasses.dataclass(frozen=True)
class DoctorConfig:
    seconds: float = option("seconds that the random policy plays", gt=0, default=60.0)
    picture: str = option("the file that shows one observation as the network gets it", default="doctor.png")


COMMAND_LINE = CommandLine(
    "python -m dqnspeed.doctor env=NAME [GROUP=OPTION or KEY=VALUE of dqnspeed.train...] [KEY=VALUE...]",
    ABOUT,
    DoctorConfig,
    others="GROUP=OPTION and KEY=VALUE of dqnspeed.train",
    is_other=lambda _: True,
)


def diagnose(run: RunConfig, seconds: float, image: Path, report: Callable[[float], None]) -> Iterator[Finding]:
    """Findings on ``run``, from the environment to its duration; writes an observation to ``image``.

    Raises:
        ConfigError: the environment cannot be made at all.
    """
    check_execution(run)
    check_threads(run)
    try:
        with _watchdog(run, "spaces"):
            problems = [(LOOK, warning) for warning in envs.probe(run.env, run.model.input_scale)]
    except ConfigError as error:
        problems = [(WRONG, str(error))]
    yield from (Finding(verdict, "spaces", text) for verdict, text in problems)
    with _watchdog(run, "spaces"):
        spec, limit = envs.describe(run), None
        made = None if atari_game(run.env) else envs.make_registered(run.env)
    if made is not None:
        limit = made.spec.max_episode_steps if made.spec else None
        yield from wrapper_order(made, run)
        made.close()
    try:
        algorithm_of(run).check_spec(run, spec)
        check_footprint(run, spec)
    except ConfigError as error:
        yield Finding(WRONG, "network", str(error))
        return
    yield from _with_errors("play", _play(run, spec, limit, seconds, image, report))
    yield from _memory(run, spec)
    yield from _with_errors("training", _training(run, spec))


def _watchdog(run: RunConfig, topic: str) -> envs.Watchdog:
    """Print a last finding and exit with code 1 if an environment in this process hangs."""
    limit = run.parallelism.timeout_s

    def end(line: str) -> None:
        what = f"env.id={run.env.id} has not answered for {limit:g} s ({line})"
        print(Finding(WRONG, topic, what, "parallelism.timeout_s=60 waits longer"), flush=True)
        os._exit(1)  # what hangs cannot be stopped otherwise

    return envs.Watchdog(limit, end)


def _with_errors(topic: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """``findings``, and one more if an error of a user's environment ends them."""
    try:
        yield from findings
    except Exception as error:
        text = " ".join(str(error).strip().splitlines()[-1:]) or type(error).__name__
        yield Finding(WRONG, topic, f"ended by {type(error).__name__}: {text}", "fix this first")


def _play(
    run: RunConfig, spec: EnvSpec, limit: int | None, seconds: float, image: Path, report: Callable[[float], None]
) -> Iterator[Finding]:
    alone = dataclasses.replace(run, num_envs=1, wrappers=dataclasses.replace(run.wrappers, clip_reward=False))
    with _watchdog(run, "play") as watchdog, contextlib.closing(envs.make_vector_env(alone)) as env:

        def on_progress(done: float) -> None:
            watchdog.beat()
            report(done)

        played = play_at_random(env, spec, seconds, run.seed, on_progress)
    yield from examine(run, spec, played, limit)
    draw(image, played.stack, spec)
    yield Finding(OK, "picture", f"{image} shows one observation as the network gets it, oldest frame first")


def draw(path: Path, stack: np.ndarray, spec: EnvSpec) -> None:
    """Write a stack ``(stack * C, ...)`` as one picture, its frames side by side."""
    from PIL import Image

    frames = stack.reshape(spec.stack, *spec.frame_shape)
    if len(spec.frame_shape) == 1:  # a vector is a row of gray bars
        low, high = frames.min(), frames.max()
        frames = ((frames - low) / max(high - low, 1e-9) * spec.largest)[:, None, None, :].repeat(4, axis=2)
    images = [enlarge(picture(frame, spec.largest), 160) for frame in frames]
    gap = np.full((images[0].shape[0], 8, 3), 255, np.uint8)
    parts = list(itertools.chain.from_iterable((gap, image) for image in images))[1:]
    with atomic.replacing(path) as partial:
        Image.fromarray(np.concatenate(parts, axis=1)).save(partial, Image.registered_extensions()[path.suffix.lower()])


def _memory(run: RunConfig, spec: EnvSpec) -> Iterator[Finding]:
    needed, free = layout_bytes(algorithm_of(run).layout(run, spec)), machine.available_memory()
    what = f"experience takes {needed / 1e9:.2f} GB of {free / 1e9:.1f} GB free"
    try:
        check_fits(run, spec)
    except ConfigError as error:
        yield Finding(WRONG, "memory", what, str(error))
        return
    if needed > 0.5 * free:
        yield Finding(LOOK, "memory", what, "more than half of what is free")
    else:
        yield Finding(OK, "memory", what)


def _training(run: RunConfig, spec: EnvSpec) -> Iterator[Finding]:
    """Collect some steps as the run would, do a few updates, and yield findings on them and on the run's duration."""
    set_threads(run)
    # Unclipped gradients, and a small replay.
    tried = dataclasses.replace(
        run,
        algo=dataclasses.replace(run.algo, max_grad_norm=None),
        replay=dataclasses.replace(run.replay, capacity=min(run.replay.capacity, max(20_000, 2 * run.algo.batch_size))),
    )
    # The speed is measured with the final exploration; the batch is of the first, random actions.
    later = dataclasses.replace(tried, exploration=exploration_of(run.exploration).settled())
    device, lock = machine.pick_device(run.device), memory_lock(run)
    learner = make_learner(tried, spec, device)
    with contextlib.closing(make_memory(later, spec, lock, device)) as memory:
        steps_s = _collect(later, spec, learner, memory, lock)
    with contextlib.closing(make_memory(tried, spec, lock, device)) as memory:
        _collect(tried, spec, learner, memory, lock)
        try:
            batch = memory.sample(run.algo.batch_size)
        except LookupError:
            yield Finding(LOOK, "speed", f"{steps_s:.1f} steps/s, too few for an update in {2 * SPEED_S:g} s")
            return
        frames = memory.recent_frames(run.model.background_frames)
        learner.begin(frames)
        learner.update(batch)
        yield from _gradients(learner, run.algo.max_grad_norm)
        yield from _losses(tried, spec, frames, batch, learner.stats())
        begin = time.perf_counter()
        for _ in range(UPDATES):
            learner.update(memory.sample(run.algo.batch_size) if run.has_replay else batch)
        learner.stats()  # waits for the device
        yield _hours(run, steps_s, UPDATES / (time.perf_counter() - begin))


def _collect(run: RunConfig, spec: EnvSpec, learner: Learner, memory: Memory, lock: object) -> float:
    """Agent steps per second of the configured actors, which store enough for a batch if there is time."""
    # Actors and workers in other processes have their own timeout.
    here = _watchdog(run, "training") if not (run.parallelism.processes or run.parallelism.overlaps) else None
    with here or contextlib.nullcontext():
        return _collected(run, spec, learner, memory, lock, here.beat if here else lambda: None)


def _collected(
    run: RunConfig, spec: EnvSpec, learner: Learner, memory: Memory, lock: object, beat: Callable[[], None]
) -> float:
    actors = make_actors(run, spec, learner.network, memory, lock, machine.pick_device(run.device))
    schedule = make_schedule(run, memory, LearningStart(0, 0))
    steps, speed = 0, 0.0
    try:
        actors.begin()
        begin = time.perf_counter()
        while not speed or not schedule.due(steps, 0):
            beat()
            actors.dispatch()
            steps += actors.collect(schedule.limit(0) if not run.has_replay else math.inf, wait=True).agent_steps
            seconds = time.perf_counter() - begin
            if not speed and (steps >= SPEED_STEPS or seconds > SPEED_S):
                speed = steps / seconds
            if not speed:
                memory.discard_pending()
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


def _losses(
    run: RunConfig, spec: EnvSpec, frames: np.ndarray, batch: object, stats: Mapping[str, float]
) -> Iterator[Finding]:
    """The scale of the errors: from both losses on the same batch, or from the value loss of a critic."""
    if "train/value_loss" in stats:
        what = f"value loss {stats['train/value_loss']:.3g} (squared errors) of an untrained network"
        if stats["train/value_loss"] > LARGE_ERROR**2:
            yield Finding(LOOK, "loss", what, "errors are far above 1; scale the rewards")
        else:
            yield Finding(OK, "loss", what)
    if not hasattr(run.algo, "loss"):
        return
    found = {}
    for name in ("mse", "huber"):
        torch.manual_seed(run.seed)
        execution = dataclasses.replace(run.execution, compile=False)
        other = dataclasses.replace(run, algo=_with_loss(run.algo, name), execution=execution)
        learner = make_learner(other, spec, machine.pick_device(run.device))
        learner.begin(frames)
        learner.update(batch)
        found[name] = learner.stats()["train/loss"]
    what = f"MSE {found['mse']:.3g}, Huber {found['huber']:.3g} on the same batch of an untrained network"
    if found["mse"] > 20 * found["huber"] and getattr(run.algo, "loss", None) == "mse":
        yield Finding(WRONG, "loss", what, "a few large errors rule MSE; set algo.loss=huber or scale the rewards")
    elif found["mse"] > 20 * found["huber"]:
        yield Finding(LOOK, "loss", what, "errors are far above 1; scale the rewards")
    else:
        yield Finding(OK, "loss", what)


def _with_loss(algo: AlgoConfig, name: str) -> AlgoConfig:
    changed: dict[str, Any] = {"loss": name}
    return dataclasses.replace(algo, **changed)


def _hours(run: RunConfig, steps_s: float, updates_s: float) -> Finding:
    """The duration of the configured run, from the speeds of acting and learning."""
    steps = run.stop.max_steps or BOOK_STEPS
    ratio = run.replay_ratio
    if ratio is None:
        return Finding(
            OK,
            "speed",
            f"{steps_s:,.0f} steps/s and, beside them, {updates_s:,.1f} updates/s; "
            f"{steps:,} steps take {steps / steps_s / 3600:.1f} h if none waits for the other",
        )
    acting, learning = 1 / steps_s, ratio / run.algo.batch_size / updates_s
    together = run.parallelism.processes or (run.parallelism.overlaps and run.has_replay)
    speed = 1 / (max(acting, learning) if together else acting + learning)
    slow = "learning" if learning > acting else "stepping the environments"
    hours = steps / speed / 3600
    which = "stop.max_steps" if run.stop.max_steps else "as many as the book's Pong"
    what = (
        f"{steps_s:,.0f} steps/s without learning, {updates_s:,.1f} updates/s; about {speed:,.0f} steps/s in all, "
        f"{hours:.1f} h for {steps:,} steps ({which}){', evaluations apart' if run.eval.every_steps else ''}"
    )
    return Finding(LOOK if hours > 24 else OK, "speed", what, f"most of the time goes into {slow}" if hours > 1 else "")


def _main() -> None:
    options, overrides = COMMAND_LINE.read(sys.argv[1:] or ["--help"])
    image = Path(options.picture)
    if not image.absolute().parent.is_dir():
        raise ConfigError(f"picture={image}: there is no such folder.")
    if image.suffix.lower() not in PICTURES:
        raise ConfigError(f"picture={image}: must end with one of {', '.join(PICTURES)}.")
    with hydra.initialize_config_dir(CONF_DIR, version_base="1.3"):
        run = compose.from_hydra(hydra.compose("config", overrides=overrides))
    for sentence in (*untuned(run, overrides), *unused(run, overrides)):
        print(f"dqnspeed: {sentence}", file=sys.stderr)
    print(f"{run.env.id}, algo={run.algo.name}: a random policy plays for {options.seconds:g} s", flush=True)
    live = sys.stdout.isatty()
    report = (lambda done: print(f"\r{done:4.0%}", end="\r", flush=True)) if live else (lambda _: None)
    worst = OK
    for finding in diagnose(run, options.seconds, image, report):
        print(finding, flush=True)
        worst = WRONG if WRONG in (worst, finding.verdict) else worst
    if worst == WRONG:
        sys.exit(1)


def main() -> None:
    """Console entry point."""
    run_app(_main)
