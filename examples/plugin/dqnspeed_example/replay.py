"""A replay that draws recent transitions more often."""

from __future__ import annotations

from dataclasses import dataclass

from dqnspeed.buffers import DeviceStorage, Replay, Sampler, UniformSampler
from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.execution.arrays import Array


@register("replay", "recent")
@dataclass(frozen=True)
class Recent(Replay):
    """The newest of a few transitions that are drawn uniformly."""

    draws: int = option("transitions of which the newest is taken, 1: uniform replay", ge=1, le=100, default=2)

    def make(self, storage: DeviceStorage, seed: int) -> Sampler:
        return RecentSampler(storage, seed, self.draws)


class RecentSampler(UniformSampler):
    def __init__(self, storage: DeviceStorage, seed: int, draws: int):
        super().__init__(storage, seed)
        self.draws = draws

    def draw(self, count: int) -> tuple[Array, Array, None]:
        """Draw ``count`` transitions, as environments and row numbers; they have no weights."""
        env, row, _ = super().draw(count * self.draws)
        age = (self.newest[env] - row).reshape(self.draws, count)
        chosen = self.storage.arrays.arange(count) + count * age.argmin(0)
        return env[chosen], row[chosen], None
