"""Small environments whose every frame says where it comes from, and some that misbehave on purpose."""

from __future__ import annotations

import os
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Counter(gymnasium.Env):
    """Frames ``(1, 3) float32`` hold (seed, episode, step); an episode ends after ``length`` steps.

    Even episodes terminate, odd ones are truncated. The reward is ``10 * action + step``.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, length: int = 7):
        self.length = length
        self.episode = -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.seed = seed % 1000
        self.episode, self.steps = self.episode + 1, 0
        return self._frame(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        ended = self.steps == self.length
        odd = self.episode % 2 == 1
        return self._frame(), 10.0 * float(action) + self.steps, ended and not odd, ended and odd, {}

    def _frame(self) -> np.ndarray:
        return np.array([self.seed, self.episode, self.steps], np.float32)


class Broken(Counter):
    """Does ``how`` at its tenth step: raise, hang, die, or spoil the reward with NaN."""

    def __init__(self, how: str):
        super().__init__(length=1000)
        self.how = how

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        frame, reward, terminated, truncated, info = super().step(action)
        if self.steps >= 10:
            if self.how == "raise":
                raise RuntimeError("the toy broke")
            if self.how == "hang":
                hang_in_the_toy()
            if self.how == "die":
                os.kill(os.getpid(), 9)
            if self.how == "spoil":
                reward = float("nan")
        return frame, reward, terminated, truncated, info


def hang_in_the_toy() -> None:
    time.sleep(600)


gymnasium.register("Counter-v0", Counter)
gymnasium.register("Broken-v0", Broken)
