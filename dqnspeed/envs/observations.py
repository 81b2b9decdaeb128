"""Observations as a Box: a vector, or an image with its channels last."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import EnvConfig
from dqnspeed.system.messages import FOREIGN

MAX_ONE_HOT_VALUES = 1_000_000

Convert = Callable[[Any], np.ndarray]


class AsBox(gymnasium.ObservationWrapper):
    """Observations as vectors ``(D,)`` or images ``(H, W)`` and ``(H, W, C)``, uint8 or float32.

    Discrete and MultiDiscrete observations (and tuples of them) become one-hot vectors, MultiBinary ones 0 and 1.
    Of a Dict the entry ``env.observation_key`` is taken. Images with their channels first are transposed.

    Attributes:
        num_states: number of states if an observation is the number of a state, else ``None``.
        first_action: number of the environment's first action.

    Raises:
        ConfigError: observations of this space are not supported.
    """

    def __init__(self, env: gymnasium.Env, config: EnvConfig):
        super().__init__(env)
        pick, space = _entry(env.observation_space, config)
        self.num_states = int(space.n) if isinstance(space, spaces.Discrete) else None
        self.first_action = int(getattr(env.action_space, "start", 0))
        flatten, box = _box(space, config)
        transposes = has_channels_first(box.shape, config)
        dtype = np.uint8 if box.dtype in (bool, np.uint8) or _fits_a_byte(box) else np.float32

        def arrange(array: np.ndarray) -> np.ndarray:
            image = array.transpose(1, 2, 0) if transposes else array
            return image[..., 0] if image.ndim == 3 and image.shape[2] == 1 else image

        def convert(observation: Any) -> np.ndarray:
            return arrange(np.asarray(flatten(pick(observation)), dtype))

        # A one-hot vector needs no conversion, which would take most of the time of a small environment's step.
        one_hot = self.num_states is not None and config.observation_key is None
        self._convert = flatten if one_hot else convert
        low, high = (arrange(bound.astype(dtype)) for bound in (box.low, box.high))
        self.observation_space = spaces.Box(low, high, dtype=dtype)

    def observation(self, observation: Any) -> np.ndarray:
        return self._convert(observation)

    def close(self) -> None:
        """Close the environment; an error ends no run."""
        with contextlib.suppress(*FOREIGN):
            super().close()


def entry_of(space: spaces.Space[Any], observation: Any, config: EnvConfig) -> tuple[spaces.Space[Any], Any]:
    """Entry of an observation that is used, with its space."""
    pick, picked = _entry(space, config)
    return picked, pick(observation)


def _entry(space: spaces.Space[Any], config: EnvConfig) -> tuple[Callable[[Any], Any], spaces.Space[Any]]:
    key = config.observation_key
    if not isinstance(space, spaces.Dict):
        if key is not None:
            raise ConfigError(f"env.observation_key={key}: the observations of {config.id} are no Dict but {space}.")
        return lambda observation: observation, space
    if key not in space.spaces:
        has = ", ".join(space.spaces)
        advice = "name one of them" if key is None else f"and not {key}"
        raise ConfigError(f"env.observation_key: the observations of {config.id} are a Dict of {has}; {advice}.")
    return lambda observation: observation[key], space[key]


def _box(space: spaces.Space[Any], config: EnvConfig) -> tuple[Convert, spaces.Box]:
    if isinstance(space, spaces.MultiBinary) and 0 not in space.shape:
        return np.asarray, spaces.Box(0, 1, space.shape, np.uint8)
    parts = space.spaces if isinstance(space, spaces.Tuple) else (space,)
    if parts and all(isinstance(part, (spaces.Discrete, spaces.MultiDiscrete)) for part in parts):
        if (values := spaces.flatdim(space)) > MAX_ONE_HOT_VALUES:
            raise ConfigError(
                f"env.id={config.id}: its observations are {space}, and one-hot vectors of {values:,} values are too "
                f"long to learn from; give {MAX_ONE_HOT_VALUES:,} at most."
            )
        if isinstance(space, spaces.Discrete):  # equal to Gymnasium's flatten(), in a tenth of the time
            start, states = int(space.start), int(space.n)

            def one_hot(number: Any) -> np.ndarray:
                row = np.zeros(states, np.uint8)
                row[number - start] = 1
                return row

            return one_hot, spaces.Box(0, 1, (states,), np.uint8)
        flat = spaces.flatten_space(space)
        assert isinstance(flat, spaces.Box)
        return (lambda observation: np.asarray(spaces.flatten(space, observation))), flat
    if not isinstance(space, spaces.Box):
        raise ConfigError(
            f"env.id={config.id}: its observations are {space}; Box, MultiBinary, Discrete and MultiDiscrete can be "
            f"learnt from, or one such entry of a Dict (env.observation_key)."
        )
    if 0 in space.shape:
        raise ConfigError(f"env.id={config.id}: its observations have the shape {space.shape}, which holds no values.")
    if not space.shape:
        return (lambda observation: np.reshape(observation, 1)), spaces.Box(
            space.low.reshape(1), space.high.reshape(1), dtype=space.dtype
        )
    if len(space.shape) > 3:
        raise ConfigError(
            f"env.id={config.id}: its observations have the shape {space.shape}; vectors, (H, W), (H, W, C) and "
            f"(C, H, W) can be learnt from, so flatten or split them in the environment."
        )
    return np.asarray, space


def has_channels_first(shape: tuple[int, ...], config: EnvConfig) -> bool:
    """Whether an image has its channels first.

    With ``env.channels=auto`` it has, if its first side is the shortest, or the other two are equal, as on a board.
    """
    if len(shape) != 3 or config.channels == "last":
        return False
    if config.channels == "first" or shape[0] < min(shape[1:]):
        return True
    return shape[0] != shape[1] == shape[2]


def _fits_a_byte(box: spaces.Box) -> bool:
    return bool(np.issubdtype(box.dtype, np.integer) and box.low.min() >= 0 and box.high.max() <= 255)
