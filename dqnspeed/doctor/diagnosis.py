"""What a configuration does to an agent, from the environment to the hours it would take."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dqnspeed import envs
from dqnspeed.actors.base import Parallelism
from dqnspeed.algorithms import algorithm_of
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.doctor.checkup import LOOK, OK, WRONG, Finding, examine, play_at_random, watchdog, wrapper_order
from dqnspeed.doctor.training import training
from dqnspeed.envs import EnvSpec
from dqnspeed.envs.games import atari_game
from dqnspeed.execution.precision import check_execution, check_learner
from dqnspeed.execution.threads import check_threads
from dqnspeed.system import atomic
from dqnspeed.system.messages import FOREIGN
from dqnspeed.tracking.video import enlarge, picture


def diagnose(run: RunConfig, seconds: float, image: Path) -> Iterator[Finding]:
    """Findings on ``run``, from the environment to its duration; writes an observation to ``image``.

    Raises:
        ConfigError: the environment cannot be made at all.
    """
    typed(run.parallelism, Parallelism).check_here()
    check_execution(run)
    check_learner(run)
    check_threads(run)
    try:
        with watchdog(run, "spaces"):
            problems = [(LOOK, warning) for warning in envs.probe(run.env, run.model.input_scale)]
    except ConfigError as error:
        problems = [(WRONG, str(error))]
    yield from (Finding(verdict, "spaces", text) for verdict, text in problems)
    with watchdog(run, "spaces"):
        spec = envs.describe(run)
    game = atari_game(run.env)
    limit = game.max_episode_frames if game else None
    if game is None:
        with watchdog(run, "spaces"):
            made = envs.make_registered(run.env)
        limit = made.spec.max_episode_steps if made.spec else None
        yield from wrapper_order(made, run)
        with contextlib.suppress(*FOREIGN):  # the probe has reported it
            made.close()
    try:
        algorithm_of(run).check_spec(run, spec)
    except ConfigError as error:
        yield Finding(WRONG, "network", str(error))
        return
    decisions = None if limit is None else -(-limit // run.wrappers.frame_skip)
    yield from _with_errors("play", _play(run, spec, decisions, seconds, image))
    yield from _with_errors("training", training(run, spec))


def _with_errors(topic: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """``findings``, and one more if an error of a user's environment ends them."""
    try:
        yield from findings
    except Exception as error:
        text = " ".join(str(error).strip().splitlines()[-1:]) or type(error).__name__
        yield Finding(WRONG, topic, f"ended by {type(error).__name__}: {text}", "fix this first")


def _play(run: RunConfig, spec: EnvSpec, limit: int | None, seconds: float, image: Path) -> Iterator[Finding]:
    alone = dataclasses.replace(run, num_envs=1, wrappers=dataclasses.replace(run.wrappers, clip_reward=False))
    # Made outside the watchdog: a game's code may be compiled first, and a user's environment has been made before.
    with contextlib.closing(envs.make_vector_env(alone)) as env, watchdog(run, "play") as watched:
        played = play_at_random(env, spec, seconds, run.seed, watched.beat)
    yield from examine(run, spec, played, limit)
    try:
        draw(image, played.stack, spec)
    except OSError as error:
        yield Finding(LOOK, "picture", f"picture={image}: cannot be written ({error.strerror or error})")
        return
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
    with atomic.replace(path) as partial:
        Image.fromarray(np.concatenate(parts, axis=1)).save(partial, Image.registered_extensions()[path.suffix.lower()])
