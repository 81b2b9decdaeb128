"""Epsilon that falls in a straight line."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.exploration.base import Exploration


@register("exploration", "linear")
@dataclass(frozen=True)
class LinearEpsilon(Exploration):
    """Epsilon falls in a straight line (Mnih et al. 2015)."""

    start: float = option("epsilon at first", ge=0, le=1)
    final: float = option("epsilon at last", ge=0, le=1)
    decay_start: int = option("agent step at which epsilon begins to fall", ge=0)
    decay_steps: int = option("agent steps it takes from start to final", ge=1)

    def epsilon_at(self, step: int) -> float:
        progress = min(1.0, max(0.0, (step - self.decay_start) / self.decay_steps))
        return self.start + progress * (self.final - self.start)

    def random_steps(self) -> float | None:
        return self.start * self.decay_start + (self.start + self.final) / 2 * self.decay_steps

    def settled(self) -> LinearEpsilon:
        return replace(self, start=self.final)

    def sentence(self) -> str:
        begin, end = self.decay_start, self.decay_start + self.decay_steps
        fall = f" to {self.final:g} from agent step {begin:,} to {end:,}" if self.start != self.final else ""
        return f"epsilon {self.start:g}{fall}"
