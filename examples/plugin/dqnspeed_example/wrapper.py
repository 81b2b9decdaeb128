"""Flickering observations."""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium
import numpy as np

from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.envs.base import Wrappers


@register("wrappers", "flicker")
@dataclass(frozen=True)
class FlickerStack(Wrappers):
    """The standard stages, and some observations blank, so that an agent must remember (Hausknecht and Stone 2015)."""

    blank: float = option("chance that an observation is blank", ge=0, le=1, default=0.5)

    def wrap(self, env: gymnasium.Env) -> gymnasium.Env:
        return Flicker(env, self.blank)


class Flicker(gymnasium.ObservationWrapper):
    def __init__(self, env: gymnasium.Env, blank: float):
        super().__init__(env)
        self.blank = blank

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return np.zeros_like(observation) if self.unwrapped.np_random.random() < self.blank else observation
