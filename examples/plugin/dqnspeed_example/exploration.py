"""Explorations: an epsilon that falls along a cosine, and actions drawn by their values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.execution.arrays import Array
from dqnspeed.exploration.base import Exploration
from dqnspeed.exploration.epsilon_greedy import QPolicy
from dqnspeed.exploration.linear import LinearEpsilon
from dqnspeed.exploration.policy import Policy
from dqnspeed.exploration.random_numbers import RandomNumbers, draw


@register("exploration", "cosine")
@dataclass(frozen=True)
class CosineEpsilon(LinearEpsilon):
    """From ``start`` to ``final`` along half a cosine: slow at the start and at the end."""

    def epsilon_at(self, step: int) -> float:
        progress = min(1.0, max(0.0, (step - self.decay_start) / self.decay_steps))
        return self.final + (self.start - self.final) * (1 + math.cos(math.pi * progress)) / 2


@register("exploration", "boltzmann")
@dataclass(frozen=True)
class Boltzmann(Exploration):
    """Boltzmann exploration: an action has the probability ``softmax(values / temperature)``."""

    temperature: float = option("difference of action values that counts", gt=0, default=0.1)

    def policy(self, *arguments: Any, **named: Any) -> Policy:
        return QPolicy(*arguments, **named, choose=self.choose)

    def choose(self, values: Array, epsilon: Array | float, random: RandomNumbers) -> Array:
        return draw(values / self.temperature, random)
