"""Shapes of an environment, and checks that the environment has them."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass

import gymnasium
import numpy as np
from gymnasium import spaces

from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import EnvConfig, RunConfig, typed
from dqnspeed.envs.backends.base import Backend
from dqnspeed.envs.build import make_env, make_registered
from dqnspeed.envs.games import atari_game, check_id
from dqnspeed.envs.probe import Probe
from dqnspeed.system.messages import FOREIGN, kind_and_line


@dataclass(frozen=True)
class EnvSpec:
    """Shapes of an environment, for networks and buffers."""

    frame_shape: tuple[int, ...]  # one frame, channels first: (1, 84, 84) or (D,)
    frame_dtype: np.dtype
    num_actions: int
    stack: int
    largest: float  # largest magnitude of a value of an image; 1 for vectors
    num_states: int | None = None  # if observations are one-hot vectors of states
    render_fps: float | None = None  # from the environment's metadata
    first_action: int = 0  # number of the environment's first action, before it is renumbered from 0

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of the network's input: ``stack`` frames joined along the first axis."""
        return (self.stack * self.frame_shape[0], *self.frame_shape[1:])


def probe(config: EnvConfig, input_scale: float | None = None) -> list[str]:
    """Play an environment other than ALE's at random for a moment; returns warnings, one sentence each.

    Args:
        input_scale: ``model.input_scale``; if given, the size of values brings no warning.

    Raises:
        ConfigError: the environment cannot be made, or violates its spaces so that nothing could be learnt.
    """
    if atari_game(config) is not None:
        return []
    try:
        env = make_registered(config)
        try:
            return Probe(env, config, input_scale).run()
        finally:
            with contextlib.suppress(*FOREIGN):  # a close() that raises harms no run
                env.close()
    except ConfigError:
        raise
    except FOREIGN as error:  # a user's environment may raise anything
        raise ConfigError(f"env.id={config.id}: broke after a few steps ({kind_and_line(error)}).") from error


def describe(run: RunConfig) -> EnvSpec:
    """Shapes of a configuration, read from one environment that is closed again.

    Raises:
        ConfigError: the environment does not exist or does not fit the wrappers.
    """
    check_env(run)
    try:
        env = make_env(run.env, run.wrappers)
    except ConfigError:
        raise
    except FOREIGN as error:  # stages that do not fit each other or the observations
        raise ConfigError(f"wrappers: do not fit {run.env.id} ({kind_and_line(error)}).") from error
    with contextlib.closing(env):
        return _spec(env, run)


def check_env(run: RunConfig) -> None:
    """Raise :class:`ConfigError` if the environment does not exist, or lacks what ``wrappers`` or ``backend`` need."""
    env, wrappers = run.env, run.wrappers
    check_id(env)
    typed(run.backend, Backend).check_here(run)
    if atari_game(env) is not None:
        return
    if wrappers.tap_frames:
        raise ConfigError(
            f"wrappers.tap_frames={wrappers.tap_frames}: needs an ALE game, and {env.id} is not one; use 0."
        )
    for key in ("noop_max", "fire_reset", "episodic_life"):
        if getattr(wrappers, key):
            raise ConfigError(
                f"wrappers.{key}={getattr(wrappers, key)}: needs an ALE game, and {env.id} is not one; "
                f"use wrappers=none, or switch this stage off."
            )


def _spec(env: gymnasium.Env, run: RunConfig) -> EnvSpec:
    observations, actions = env.observation_space, env.action_space
    if not isinstance(actions, spaces.Discrete):
        raise ConfigError(f"env.id={run.env.id}: its actions are {actions}, and only Discrete ones can be learnt.")
    assert isinstance(observations, spaces.Box)
    bound = float(np.abs([observations.low.min(), observations.high.max()]).max())
    largest = bound if len(observations.shape) == 3 and 0 < bound < math.inf else 1.0
    dtype, stack = np.dtype(observations.dtype), run.wrappers.stack
    num_states = env.get_wrapper_attr("num_states") if env.has_wrapper_attr("num_states") and stack == 1 else None
    fps = (env.metadata or {}).get("render_fps")
    fps = float(fps) if isinstance(fps, (int, float, np.integer, np.floating)) and 0 < fps < math.inf else None
    first = env.get_wrapper_attr("first_action") if env.has_wrapper_attr("first_action") else 0
    return EnvSpec(observations.shape, dtype, int(actions.n), stack, largest, num_states, fps, first)
