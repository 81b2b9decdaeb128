"""Checks that an environment agrees with its spaces, and that it answers in time."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import EnvConfig
from dqnspeed.envs.observations import entry_of

PROBE_STEPS, PROBE_SECONDS = 300, 2.0


class Probe:
    """Plays at random and compares every observation with its space.

    Raises:
        ConfigError: at a mistake that would prevent learning.
    """

    def __init__(self, env: gymnasium.Env, config: EnvConfig, input_scale: float | None = None):
        self._env, self._config, self._input_scale = env, config, input_scale
        self._space = env.observation_space
        self._lowest, self._highest = np.inf, -np.inf
        self._out_of_range = False

    def run(self, seed: int = 0) -> list[str]:
        """Play a little; returns the warnings, one sentence each."""
        self._env.action_space.seed(seed)
        self._reset(seed)
        begin = time.monotonic()
        for step in range(1, PROBE_STEPS + 1):
            result: Any = self._env.step(self._env.action_space.sample())
            observation, reward, terminated, truncated, _ = result
            self._check(observation, f"after {step} steps")
            if isinstance(reward, (str, bytes)) or np.ndim(reward) or not np.isfinite(float(reward)):
                self._fail(f"its reward is {reward!r} after {step} steps, and must be a finite number")
            if terminated or truncated:
                self._reset(None)
            if time.monotonic() - begin > PROBE_SECONDS:
                break
        return [f"env.id={self._config.id}: {warning}." for warning in self._warnings()]

    def _reset(self, seed: int | None) -> None:
        observation, _ = self._env.reset(seed=seed)
        self._check(observation, "after a reset")

    def _check(self, observation: Any, when: str) -> None:
        space, entry = entry_of(self._env.observation_space, observation, self._config)
        self._space = space
        if not isinstance(space, (spaces.Box, spaces.MultiBinary)):
            if not space.contains(entry):
                self._fail(f"its observation {entry} {when} is not in its space {space}")
            return
        array = np.asarray(entry)
        if array.shape != space.shape:
            self._fail(f"its observation has the shape {array.shape} {when}, and its space says {space.shape}")
        whole = np.issubdtype(space.dtype, np.integer) or space.dtype == bool
        if whole and np.issubdtype(array.dtype, np.floating):
            self._fail(f"its observation is {array.dtype} {when}, and its space says {space.dtype} (was it divided?)")
        if not np.isfinite(array).all():
            self._fail(f"its observation holds {array[~np.isfinite(array)].flat[0]} {when}")
        low, high = (space.low, space.high) if isinstance(space, spaces.Box) else (0, 1)
        slack = 0 if whole else 1e-5 * np.maximum(1, np.abs(np.where(np.isfinite(array), array, 0)))
        self._out_of_range |= bool((array < low - slack).any() or (array > high + slack).any())
        self._lowest, self._highest = min(self._lowest, array.min()), max(self._highest, array.max())

    def _warnings(self) -> Iterator[str]:
        if self._out_of_range:
            yield f"its observations reach from {self._lowest:g} to {self._highest:g}, beyond what its space allows"
        space = self._space
        if not isinstance(space, spaces.Box) or len(space.shape) < 2 or self._input_scale is not None:
            return
        allowed = float(np.abs([space.low.min(), space.high.max()]).max())
        largest = max(abs(self._lowest), abs(self._highest))
        if np.isfinite(allowed) and 0 < largest <= allowed / 16:
            yield (
                f"its observations reach {largest:g} where its space allows {allowed:g}; if they were divided already "
                f"correct the space, else set model.input_scale={largest:g}"
            )

    def _fail(self, what: str) -> None:
        raise ConfigError(f"env.id={self._config.id}: {what}.")


class Watchdog:
    """Context in which a thread calls ``alarm`` once if no :meth:`beat` comes for ``limit`` seconds.

    The argument of ``alarm`` is the line at which the caller's thread hangs. An environment that holds the
    interpreter's lock stops the watchdog, too.
    """

    def __init__(self, limit: float, alarm: Callable[[str], None]):
        self._limit, self._alarm = max(limit, 1.0), alarm
        self._ended = threading.Event()
        self._thread = threading.get_ident()

    def __enter__(self) -> Watchdog:
        self.beat()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def beat(self) -> None:
        """A sign of life."""
        self._last = time.monotonic()

    def _watch(self) -> None:
        while not self._ended.wait(min(1.0, self._limit / 4)):
            if time.monotonic() - self._last > self._limit:
                at = traceback.extract_stack(sys._current_frames()[self._thread])[-1]
                self._alarm(f"{at.filename}:{at.lineno}, in {at.name}")
                return
