"""A replay that draws recent transitions more often."""

from __future__ import annotations

from dataclasses import dataclass

from dqnspeed.buffers import Buffer
from dqnspeed.buffers.base import ReplayArguments
from dqnspeed.buffers.uniform import Uniform, UniformReplay
from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.execution.arrays import Array


@register("replay", "recent")
@dataclass(frozen=True)
class Recent(Uniform):
    """The newest of a few transitions that are drawn uniformly."""

    draws: int = option("transitions of which the newest is taken, 1: uniform replay", ge=1, le=100, default=2)

    def make(self, arguments: ReplayArguments) -> Buffer:
        return RecentReplay(self.draws, arguments)


class RecentReplay(UniformReplay):
    def __init__(self, draws: int, arguments: ReplayArguments):
        super().__init__(arguments)
        self._draws = draws

    def draw(self, count: int) -> tuple[Array, Array]:
        """Lanes and absolute row numbers of ``count`` transitions."""
        lane, row = super().draw(count * self._draws)
        age = self.newest[lane] - row
        chosen = self.arrays.arange(count) + count * age.reshape(self._draws, count).argmin(0)
        return lane[chosen], row[chosen]
