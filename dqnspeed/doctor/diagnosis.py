"""Findings on a configuration, from its environment to the duration of its run."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dqnspeed import envs
from dqnspeed.actors.base import Parallelism
from dqnspeed.algorithms import algorithm_of
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.doctor.checkup import LOOK, OK, WRONG, Finding, check_play, check_wrappers, play_at_random, watchdog
from dqnspeed.doctor.training import check_training
from dqnspeed.envs import EnvSpec
from dqnspeed.envs.games import atari_game
from dqnspeed.execution.precision import check_execution, check_learner
from dqnspeed.execution.threads import check_threads
from dqnspeed.system import atomic
from dqnspeed.system.messages import FOREIGN
from dqnspeed.tracking.video import enlarge, picture

GAP = (0, 0), (0, 8), (0, 0)  # pixels at the right of a frame


def diagnose(run: RunConfig, seconds: float, image: Path) -> Iterator[Finding]:
    """Findings on ``run``; writes an observation into the file ``image``.

    Args:
        seconds: time for which a random policy plays.

    Raises:
        ConfigError: the environment cannot be made at all.
    """
    typed(run.parallelism, Parallelism).check_here()
    check_execution(run)
    check_learner(run)
    check_threads(run)
    with watchdog(run, "spaces") as watched:
        try:
            findings = [Finding(LOOK, "spaces", warning) for warning in envs.probe(run.env, run.model.input_scale)]
        except ConfigError as error:
            findings = [Finding(WRONG, "spaces", str(error))]
        yield from findings
        watched.beat()
        spec = envs.describe(run)
        watched.beat()
        game = atari_game(run.env)
        limit = game.max_episode_frames if game else None
        if game is None:
            env = envs.make_registered(run.env)
            limit = env.spec.max_episode_steps if env.spec else None
            yield from check_wrappers(env, run)
            with contextlib.suppress(*FOREIGN):  # the probe has reported it
                env.close()
    try:
        algorithm_of(run).check_spec(run, spec)
    except ConfigError as error:
        yield Finding(WRONG, "network", str(error))
        return
    max_episode_steps = None if limit is None else -(-limit // run.wrappers.frame_skip)
    yield from _with_errors("play", _play(run, spec, max_episode_steps, seconds, image))
    yield from _with_errors("training", check_training(run, spec))


def _with_errors(topic: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """``findings``, and another finding if an error of a user's environment ends them."""
    try:
        yield from findings
    except Exception as error:
        text = " ".join(str(error).strip().splitlines()[-1:]) or type(error).__name__
        yield Finding(WRONG, topic, f"ended by {type(error).__name__}: {text}", "fix this first")


def _play(run: RunConfig, spec: EnvSpec, max_steps: int | None, seconds: float, image: Path) -> Iterator[Finding]:
    unclipped = dataclasses.replace(run, num_envs=1, wrappers=dataclasses.replace(run.wrappers, clip_reward=False))
    # Made outside the watchdog, because a game's code may be compiled first.
    with contextlib.closing(envs.make_vector_env(unclipped)) as env, watchdog(run, "play") as watched:
        play = play_at_random(env, spec, seconds, run.seed, watched.beat)
    yield from check_play(run, spec, play, max_steps)
    try:
        draw_observation(image, play.observation, spec)
    except OSError as error:
        yield Finding(LOOK, "picture", f"picture={image}: cannot be written ({error.strerror or error})")
        return
    yield Finding(OK, "picture", f"{image} shows one observation as the network gets it, oldest frame first")


def draw_observation(path: Path, observation: np.ndarray, spec: EnvSpec) -> None:
    """Draw an observation ``(stack * C, ...)`` into ``path``, its frames side by side."""
    from PIL import Image

    frames = observation.reshape(spec.stack, *spec.frame_shape)
    if len(spec.frame_shape) == 1:  # a vector is a row of gray bars
        low, high = frames.min(), frames.max()
        frames = ((frames - low) / max(high - low, 1e-9) * spec.largest)[:, None, None, :].repeat(4, axis=2)
    padded = [np.pad(enlarge(picture(frame, spec.largest), 160), GAP, constant_values=255) for frame in frames]
    image = Image.fromarray(np.concatenate(padded, axis=1)[:, :-8])
    with atomic.replace(path) as partial:
        image.save(partial, Image.registered_extensions()[path.suffix.lower()])
