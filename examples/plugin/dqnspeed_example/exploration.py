"""An epsilon that falls along a cosine."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dqnspeed.config.registry import register
from dqnspeed.exploration.linear import LinearEpsilon


@register("exploration", "cosine")
@dataclass(frozen=True)
class CosineEpsilon(LinearEpsilon):
    """From ``start`` to ``final`` along half a cosine: slow at first and at last."""

    def epsilon_at(self, step: int) -> float:
        progress = min(1.0, max(0.0, (step - self.decay_start) / self.decay_steps))
        return self.final + (self.start - self.final) * (1 + math.cos(math.pi * progress)) / 2
