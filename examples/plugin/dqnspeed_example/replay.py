"""A replay that draws recent transitions more often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.memory import Memory
from dqnspeed.memory.uniform import Uniform, UniformReplay


@register("replay", "recent")
@dataclass(frozen=True)
class Recent(Uniform):
    """The newest of a few transitions that are drawn uniformly."""

    draws: int = option("transitions of which the newest is taken, 1: uniform replay", ge=1, le=100, default=2)

    def make(self, *args: Any, **kwargs: Any) -> Memory:
        return RecentReplay(self.draws, *args, **kwargs)


class RecentReplay(UniformReplay):
    def __init__(self, draws: int, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._draws = draws

    def draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Lanes and absolute row numbers of ``count`` transitions."""
        lane, row = super().draw(count * self._draws)
        age = self.cursors()[lane] - row
        newest = np.arange(count) + count * age.reshape(self._draws, count).argmin(axis=0)
        return lane[newest], row[newest]
