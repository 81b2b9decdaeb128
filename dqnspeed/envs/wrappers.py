"""Gymnasium wrappers, each one stage of ``wrappers``.

:class:`VectorEnv` clips rewards and handles lost lives, and :class:`FrameStack` stacks frames, for a whole batch
and for every backend.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from PIL import Image

from dqnspeed.config.options import ConfigError


class _StartPresses(gymnasium.Wrapper):
    """Presses buttons at a game's start, and adds their reward, ``start_reward``, to the first step's reward."""

    start_reward = 0.0

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        frame, reward, terminated, truncated, info = self.env.step(action)
        if self.start_reward:
            reward, self.start_reward = float(reward) + self.start_reward, 0.0
        return frame, reward, terminated, truncated, info


class NoopReset(_StartPresses):
    """Starts a game with 1 to ``noop_max`` no-ops, one frame each (Mnih et al. 2015, Methods).

    Where ALE's minimal set has no NOOP (Backgammon) nothing is pressed.
    """

    def __init__(self, env: gymnasium.Env, noop_max: int):
        super().__init__(env)
        self.noop_max = noop_max
        self.noop = action_index(env, "NOOP")

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        frame, info = self.env.reset(**kwargs)
        self.start_reward = 0.0
        if self.noop is None:
            return frame, info
        for _ in range(int(self.unwrapped.np_random.integers(1, self.noop_max + 1))):
            frame, reward, terminated, truncated, info = self.env.step(self.noop)
            self.start_reward += float(reward)
            if terminated or truncated:
                frame, info = self.env.reset()
                self.start_reward = 0.0
        return frame, info


class FireReset(_StartPresses):
    """Presses FIRE for one frame at a game's start, as ALE's vector environment does.

    A game that FIRE ends is restarted without it.
    """

    def __init__(self, env: gymnasium.Env, fire: int):
        super().__init__(env)
        self.fire = fire

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        frame, info = self.env.reset(**kwargs)
        frame, reward, terminated, truncated, info = self.env.step(self.fire)
        self.start_reward = float(reward)
        if terminated or truncated:
            frame, info = self.env.reset()
            self.start_reward = 0.0
        return frame, info


class StickyActions(gymnasium.Wrapper):
    """Repeats the action of the frame before with a probability, as ALE does (Machado et al. 2018, section 5.2).

    :class:`FireReset` is wrapped by it, so that its press always takes effect.

    Args:
        start: action of the frame before the agent's first; ``None``: NOOP.

    Attributes:
        last_action: action of the last frame, which may be repeated; ``None``: no action of the game.
        for_agent: whether the next frames are a press for the agent, which takes effect.
    """

    def __init__(self, env: gymnasium.Env, probability: float, start: int | None):
        super().__init__(env)
        self.probability = probability
        self.start = self.last_action = action_index(env, "NOOP") if start is None else start
        self.for_agent = False

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self.last_action = self.start
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        repeats = not self.for_agent and self.unwrapped.np_random.random() < self.probability
        if not repeats or self.last_action is None:
            self.last_action = int(action)
        return self.env.step(self.last_action)


def action_index(env: gymnasium.Env, name: str) -> int | None:
    """Index of an ALE action in the set of this game, or ``None``."""
    meanings: list[str] = env.get_wrapper_attr("get_action_meanings")()
    return meanings.index(name) if name in meanings else None


class FrameSkip(gymnasium.Wrapper):
    """Repeats an action for ``skip`` frames and sums the rewards.

    With ``tap`` each action but NOOP comes a second time, after all others: pressed for ``tap`` frames, then let go.

    With ``max_pool`` the observation is the pixel maximum of the last two frames, which removes the flicker of sprites
    drawn on every other frame (Mnih et al. 2015, Methods). If a game ends in the middle of a skip, the maximum is of
    frames of the step before, as in Gymnasium's ``AtariPreprocessing``.
    """

    def __init__(self, env: gymnasium.Env, skip: int, max_pool: bool, tap: int = 0):
        super().__init__(env)
        self.skip, self.tap = skip, tap
        self._names: list[str] | None = None
        if tap:
            held: list[str] = env.get_wrapper_attr("get_action_meanings")()
            self._noop, self._held = action_index(env, "NOOP"), len(held)
            if self._noop is None:
                raise ConfigError(f"wrappers.tap_frames={tap}: lets go of an action, and this game's have no NOOP.")
            self._tapped = [i for i in range(len(held)) if i != self._noop]
            self._names = [*held, *(f"{name} TAP" for name in held if name != "NOOP")]
            self.action_space = spaces.Discrete(len(self._names))
        self.max_pool = max_pool and skip > 1
        self.last_two: list[np.ndarray] = []

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        frame, info = self.env.reset(**kwargs)
        if self.max_pool:
            self.last_two = [np.zeros_like(frame), np.array(frame)]
        return frame, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total, lets_go = 0.0, self.skip
        if self.tap and action >= self._held:
            action, lets_go = self._tapped[action - self._held], self.tap
        for i in range(self.skip):
            frame, reward, terminated, truncated, info = self.env.step(action if i < lets_go else self._noop)
            total += float(reward)
            if terminated or truncated:
                break
            if self.max_pool and i >= self.skip - 2:
                self.last_two[i - self.skip + 2] = np.array(frame)  # an environment may draw into one array
        if self.max_pool:
            frame = self.last_two[1] = np.maximum(*self.last_two)
        return frame, total, terminated, truncated, info

    def get_action_meanings(self) -> list[str]:
        """Names of the actions, of a game that has them."""
        return self._names or list(self.env.get_wrapper_attr("get_action_meanings")())


class Crop(gymnasium.ObservationWrapper):
    """Keeps the rows ``[top, bottom)`` and columns ``[left, right)`` of (H, W) or (H, W, C) images.

    Mnih et al. (2013, section 4.1) keep the field of play.
    """

    def __init__(self, env: gymnasium.Env, top: int, bottom: int, left: int, right: int):
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, spaces.Box)
        given = f"wrappers.crop={[top, bottom, left, right]}"
        if len(space.shape) not in (2, 3):
            raise ConfigError(f"{given}: crops images, and observations here are {space.shape}.")
        height, width, *_ = space.shape
        if bottom > height or right > width:
            raise ConfigError(f"{given}: images here have {height} rows and {width} columns.")
        self.kept = slice(top, bottom), slice(left, right)
        self.observation_space = spaces.Box(space.low[self.kept], space.high[self.kept], dtype=space.dtype.type)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[self.kept]


class PillowResize(gymnasium.ObservationWrapper):
    """Resizes (H, W) or (H, W, C) uint8 images to a square with Pillow (or Pillow-SIMD, where installed)."""

    FILTERS = {"area": "BOX", "bilinear": "BILINEAR", "bicubic": "BICUBIC", "nearest": "NEAREST"}

    def __init__(self, env: gymnasium.Env, side: int, interpolation: str):
        super().__init__(env)
        if env.observation_space.dtype != np.uint8:
            raise ConfigError("wrappers.resizer=pillow: resizes uint8 images only; use wrappers.resizer=cv2.")
        self.size = (side, side)
        self.filter = Image.Resampling[self.FILTERS[interpolation]]
        self.observation_space = resized(env.observation_space, side)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        if observation.ndim == 2 or observation.shape[2] == 3:
            return np.asarray(Image.fromarray(observation).resize(self.size, self.filter))
        # One channel at a time: Pillow takes the last of two or four for transparency.
        return np.stack([self.observation(channel) for channel in np.moveaxis(observation, 2, 0)], axis=2)


def resized(space: spaces.Space[Any], side: int) -> spaces.Box:
    """Space of (H, W) or (H, W, C) images after a resize to a square.

    Raises:
        ConfigError: observations are not images.
    """
    assert isinstance(space, spaces.Box)
    if len(space.shape) not in (2, 3):
        raise ConfigError(f"wrappers.resize={side}: resizes images, and observations here are {space.shape}.")
    shape = (side, side, *space.shape[2:])
    return spaces.Box(space.low.min(), space.high.max(), shape, space.dtype)


class ChannelsFirst(gymnasium.ObservationWrapper):
    """Turns (H, W) into (1, H, W) and (H, W, C) into (C, H, W)."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, spaces.Box)
        self.observation_space = spaces.Box(
            self.observation(space.low), self.observation(space.high), dtype=space.dtype
        )

    def observation(self, observation: np.ndarray) -> np.ndarray:
        if observation.ndim == 2:
            return observation[None]
        return np.ascontiguousarray(observation.transpose(2, 0, 1))
