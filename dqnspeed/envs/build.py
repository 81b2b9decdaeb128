"""Environments of a configuration: one with its wrappers, or a vector of them."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec as EnvSpecOfGymnasium
from gymnasium.wrappers import GrayscaleObservation, TransformAction, TransformObservation

from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import EnvConfig, RunConfig, WrappersConfig, typed
from dqnspeed.envs.backends.base import Backend
from dqnspeed.envs.base import Wrappers
from dqnspeed.envs.games import atari_game, fire_index, make_atari
from dqnspeed.envs.observations import AsBox
from dqnspeed.envs.vector import VectorEnv
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
from dqnspeed.system.messages import FOREIGN, kind_and_line

MAX_DROP_CHANCE = 1e-4  # that sticky actions replace every frame of a press for the agent
MAX_CV2_CHANNELS = 4  # of an image that cv2 resizes with every interpolation


def make_env(env: EnvConfig, wrappers: WrappersConfig, render_mode: str | None = None) -> gymnasium.Env:
    """One environment with the stages of ``wrappers`` that work on single frames."""
    cv2_threads_off()
    game = atari_game(env)
    made = make_atari(game, wrappers.grayscale, render_mode) if game else _make_own(env, render_mode)
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
    """``num_envs`` environments, played by ``run.backend``.

    Args:
        overlap: environments step between ``send`` and ``recv``, while the caller works.
        render_mode: Gymnasium's, with which :meth:`VectorEnv.render` gives images; ``backend=ale`` gives none.
        seeds: of the global generators in the worker processes of an ``overlap``, one for each environment.
    """
    backend, game, wrappers = typed(run.backend, Backend), atari_game(run.env), run.wrappers
    engine = backend.make(run, overlap, render_mode, seeds or range(run.num_envs))
    fire = fire_index(game) if wrappers.fire_reset and game else None
    press, presses, start_presses = fire or 0, 1, 0
    if game and game.sticky_actions and not backend.drops_presses:
        press = ~press
    elif game and game.sticky_actions and fire is not None:
        frames = math.ceil(math.log(MAX_DROP_CHANCE, game.sticky_actions))
        presses = start_presses = math.ceil(frames / wrappers.frame_skip)
    return VectorEnv(
        engine,
        clip_reward=wrappers.clip_reward,
        episodic_life=wrappers.episodic_life,
        life_action=press,
        presses=presses,
        start_presses=start_presses,
    )


def cv2_threads_off() -> None:
    """An 84x84 resize is too small for threads; OpenCV's would take the learner's cores."""
    import cv2

    cv2.setNumThreads(1)


def _make_own(env: EnvConfig, render_mode: str | None) -> gymnasium.Env:
    """An environment other than ALE's, with observations as a Box and actions numbered from 0."""
    made = AsBox(make_registered(env, render_mode), env)
    actions = made.action_space
    if isinstance(actions, spaces.Discrete) and (actions.start != 0 or actions.dtype != np.int64):
        start, own = int(actions.start), np.dtype(actions.dtype).type
        return TransformAction(made, lambda action: own(int(action) + start), spaces.Discrete(actions.n))
    return made


def make_registered(env: EnvConfig, render_mode: str | None = None) -> gymnasium.Env:
    """The environment as Gymnasium makes it, without the stages of ``wrappers``.

    Raises:
        ConfigError: it cannot be made.
    """
    try:
        named = _registered(env.id)
        kwargs: dict[str, Any] = dict(env.kwargs)
        if render_mode is not None:  # not every environment takes render_mode
            kwargs["render_mode"] = render_mode
        return gymnasium.make(named, disable_env_checker=True, **kwargs)
    except FOREIGN as error:  # a user's environment may raise anything
        raise ConfigError(f"env.id={env.id}: could not be made ({kind_and_line(error)}).") from error


def _registered(env_id: str) -> str | EnvSpecOfGymnasium:
    """Argument of ``gymnasium.make`` for an id whose module is imported here; ``module:Class`` may name a class.

    A package that registers its environments on demand has a function ``register_envs()``.
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


def _cv2_resize(env: gymnasium.Env, side: int, interpolation: str) -> gymnasium.Env:
    import cv2

    flags = {"area": "AREA", "bilinear": "LINEAR", "bicubic": "CUBIC", "nearest": "NEAREST"}
    flag = getattr(cv2, f"INTER_{flags[interpolation]}")

    def resize(image: np.ndarray) -> np.ndarray:
        if image.ndim == 2 or image.shape[2] <= MAX_CV2_CHANNELS:
            return np.asarray(cv2.resize(image, (side, side), interpolation=flag))
        parts = [image[:, :, first : first + MAX_CV2_CHANNELS] for first in range(0, image.shape[2], MAX_CV2_CHANNELS)]
        return np.dstack([resize(np.ascontiguousarray(part)) for part in parts])

    return TransformObservation(env, resize, resized(env.observation_space, side))
