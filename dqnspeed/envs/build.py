"""Builds environments from the configuration: one frame environment, or a vector of them."""

from __future__ import annotations

import functools
import importlib
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec as EnvSpecOfGymnasium
from gymnasium.wrappers import GrayscaleObservation, TransformAction, TransformObservation

from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import EnvConfig, ParallelismConfig, RunConfig, WrappersConfig, typed
from dqnspeed.envs.ale import fire_index, make_atari, start_rewards
from dqnspeed.envs.backends import AsyncBackend, Backend, NativeBackend, SyncBackend
from dqnspeed.envs.base import Wrappers
from dqnspeed.envs.emulation import emulated
from dqnspeed.envs.games import AtariGame, atari_game
from dqnspeed.envs.observations import AsBox
from dqnspeed.envs.resumable import Resumable
from dqnspeed.envs.vector import VectorEnv
from dqnspeed.envs.workers import AUTORESET, make_in_worker, make_workers
from dqnspeed.envs.wrappers import (
    ChannelsFirst,
    Crop,
    FireReset,
    FrameSkip,
    NoopReset,
    PillowResize,
    StickyActions,
    resized,
)
from dqnspeed.system import machine
from dqnspeed.system.messages import FOREIGN, kind_and_line

DROPPED = 1e-4  # chance that ALE's sticky actions drop each frame of a press for the agent
MOST_CHANNELS = 4  # of an image, which cv2 resizes with every interpolation


def make_env(env: EnvConfig, wrappers: WrappersConfig, render_mode: str | None = None) -> gymnasium.Env:
    """One environment with every stage that works on one environment; its observations are single frames."""
    cv2_threads_off()
    game = atari_game(env)
    made = make_atari(game, wrappers, render_mode) if game else _make_own(env, render_mode)
    if wrappers.noop_max:
        made = NoopReset(made, wrappers.noop_max)
    if wrappers.fire_reset and game and (fire := fire_index(game)) is not None:
        made = FireReset(made, fire)
    if game and game.sticky_actions:
        made = StickyActions(made, game.sticky_actions, made.fire if isinstance(made, FireReset) else None)
    if wrappers.frame_skip > 1:
        made = FrameSkip(made, wrappers.frame_skip, wrappers.max_pool, wrappers.tap_frames)
    if wrappers.grayscale and not game and len(made.observation_space.shape or ()) == 3:  # ALE itself gives grayscale
        made = GrayscaleObservation(made)
    if wrappers.crop:
        made = Crop(made, *wrappers.crop)
    if wrappers.resize and wrappers.resizer == "pillow":
        made = PillowResize(made, wrappers.resize, wrappers.interpolation)
    elif wrappers.resize:
        made = _cv2_resize(made, wrappers.resize, wrappers.interpolation)
    shape = made.observation_space.shape
    made = ChannelsFirst(made) if shape is not None and len(shape) in (2, 3) else made
    return typed(wrappers, Wrappers).wrap(made)


def make_vector_env(
    run: RunConfig,
    overlap: bool = False,
    render_mode: str | None = None,
    seeds: Sequence[int] | None = None,
) -> VectorEnv:
    """``num_envs`` environments; with ``overlap`` they step while the caller works.

    With a ``render_mode`` they can be rendered (not with ``wrappers=native``).

    Args:
        seeds: of the global generators in the worker processes of an ``overlap``, one for each environment.
    """
    game = atari_game(run.env)
    backend: Backend
    if run.wrappers.backend == "native":
        assert game is not None
        rewards = start_rewards(game, run.wrappers.fire_reset, run.wrappers.noop_max)
        backend = NativeBackend(_native(game, run.wrappers, run.num_envs, run.parallelism), rewards)
    elif run.wrappers.backend == "emulator":
        assert game is not None
        backend = emulated(game, run, overlap, whole=render_mode is not None)
    else:
        make = functools.partial(_make_resumable, run.env, run.wrappers, render_mode)
        backend = _gymnasiums(make, run, overlap, seeds or range(run.num_envs))
    fire = fire_index(game) if run.wrappers.fire_reset and game else None
    press, presses, start_presses = fire or 0, 1, 0
    if game and game.sticky_actions and run.wrappers.backend != "native":
        press = ~press
    elif game and game.sticky_actions and fire is not None:
        frames = math.ceil(math.log(DROPPED, game.sticky_actions))
        presses = start_presses = math.ceil(frames / run.wrappers.frame_skip)
    return VectorEnv(
        backend,
        clip_reward=run.wrappers.clip_reward,
        episodic_life=run.wrappers.episodic_life,
        life_action=press,
        presses=presses,
        start_presses=start_presses,
    )


def _gymnasiums(make: Callable[[], gymnasium.Env], run: RunConfig, overlap: bool, seeds: Sequence[int]) -> Backend:
    try:
        if overlap:
            makers = [functools.partial(make_in_worker, make, seed, os.getpid()) for seed in seeds]
            return AsyncBackend(make_workers(makers, run.parallelism.timeout_s), run.parallelism.timeout_s)
        one = gymnasium.vector.SyncVectorEnv([make] * run.num_envs, copy=False, autoreset_mode=AUTORESET)
        return SyncBackend(one)
    except RuntimeError as error:
        if "not equivalent" not in str(error):
            raise
        raise ConfigError(
            f"env.id={run.env.id}: its instances differ in their spaces. Let all have the same observation and action "
            f"space."
        ) from error


def cv2_threads_off() -> None:
    """An 84x84 resize is too small for threads; OpenCV's would take the learner's cores."""
    import cv2

    cv2.setNumThreads(1)


def _make_own(env: EnvConfig, render_mode: str | None) -> gymnasium.Env:
    """An environment that is not ALE's, with observations as a Box and actions from 0, which it gets as its own space
    has them."""
    made = AsBox(make_registered(env, render_mode), env)
    actions = made.action_space
    if isinstance(actions, spaces.Discrete) and (actions.start != 0 or actions.dtype != np.int64):
        start, own = int(actions.start), np.dtype(actions.dtype).type
        return TransformAction(made, lambda action: own(int(action) + start), spaces.Discrete(actions.n))
    return made


def make_registered(env: EnvConfig, render_mode: str | None = None) -> gymnasium.Env:
    """The environment as registered, without the stages of ``wrappers``.

    Raises:
        ConfigError: it cannot be made.
    """
    try:
        named = _registered(env.id)
        rendering: dict[str, Any] = (
            {} if render_mode is None else {"render_mode": render_mode}
        )  # not every environment takes render_mode
        return gymnasium.make(named, disable_env_checker=True, **{**env.kwargs, **rendering})
    except FOREIGN as error:  # a user's environment may raise anything
        raise ConfigError(f"env.id={env.id}: could not be made ({kind_and_line(error)}).") from error


def _registered(env_id: str) -> str | EnvSpecOfGymnasium:
    """The argument of ``gymnasium.make`` for an id, with its module imported; ``module:Class`` may name a class.

    Packages that register on demand do it in ``register_envs()``.
    """
    module, _, name = env_id.rpartition(":")
    if not module or name in gymnasium.registry:
        return env_id
    imported = importlib.import_module(module)
    named = getattr(imported, name, None)
    if isinstance(named, type) and issubclass(named, gymnasium.Env):
        return EnvSpecOfGymnasium(name, entry_point=f"{module}:{name}")
    register = getattr(imported, "register_envs", None)
    if register is not None and name not in gymnasium.registry:
        register()
    return env_id


def _make_resumable(env: EnvConfig, wrappers: WrappersConfig, render_mode: str | None) -> gymnasium.Env:
    return Resumable(make_env(env, wrappers, render_mode))


def _cv2_resize(env: gymnasium.Env, side: int, interpolation: str) -> gymnasium.Env:
    import cv2

    flags = {"area": "AREA", "bilinear": "LINEAR", "bicubic": "CUBIC", "nearest": "NEAREST"}
    flag = getattr(cv2, f"INTER_{flags[interpolation]}")

    def resize(image: np.ndarray) -> np.ndarray:
        if image.ndim == 2 or image.shape[2] <= MOST_CHANNELS:
            return np.asarray(cv2.resize(image, (side, side), interpolation=flag))
        parts = [image[:, :, first : first + MOST_CHANNELS] for first in range(0, image.shape[2], MOST_CHANNELS)]
        return np.dstack([resize(np.ascontiguousarray(part)) for part in parts])

    return TransformObservation(env, resize, resized(env.observation_space, side))


def fastest_backend(env: EnvConfig, wrappers: WrappersConfig) -> str:
    """Who plays with ``wrappers.backend=auto``: the emulator if it is installed and can play the game, else ALE's own;
    or Gymnasium's, if it is to crop, or actions are tapped, or a mode or difficulty is chosen."""
    game = atari_game(env)
    try:
        from atari_warp import games

        games.check("") if game is None else games.check(game.rom, game.mode, game.difficulty)
    except (ImportError, ValueError):
        whole = wrappers.crop is None and not wrappers.tap_frames and env.mode is None and env.difficulty is None
        return "native" if whole else "gymnasium"
    return "emulator"


def _native(game: AtariGame, wrappers: WrappersConfig, num_envs: int, parallelism: ParallelismConfig) -> object:
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv(
        game.rom,
        num_envs,
        # Actors set their share of the cores; an evaluation runs alone and may use all.
        num_threads=parallelism.env_threads or min(num_envs, machine.cores()),
        max_num_frames_per_episode=game.max_episode_frames,
        repeat_action_probability=game.sticky_actions,
        full_action_space=game.full_action_space,
        autoreset_mode=AUTORESET,
        img_height=wrappers.resize,
        img_width=wrappers.resize,
        grayscale=wrappers.grayscale,
        stack_num=1,  # stacks are built from single frames, the same for every backend
        frameskip=wrappers.frame_skip,
        maxpool=wrappers.max_pool,
        noop_max=wrappers.noop_max,
        episodic_life=False,  # ALE's restarts the whole game at a lost life
        reward_clipping=False,  # returns are of the unclipped game
        use_fire_reset=wrappers.fire_reset and fire_index(game) is not None,
    )
