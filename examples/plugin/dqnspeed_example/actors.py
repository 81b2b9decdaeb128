"""Actors that keep time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from dqnspeed.actors.base import ActorArguments, Actors, Collected
from dqnspeed.actors.local import Serial
from dqnspeed.config.options import option
from dqnspeed.config.registry import register


@register("parallelism", "paced")
@dataclass(frozen=True)
class Paced(Serial):
    """``serial``, no faster than a clock: for environments outside the computer, or to leave it to others."""

    steps_per_second: float = option("agent steps in a second at most", gt=0, default=60.0)

    def make(self, arguments: ActorArguments) -> Actors:
        return PacedActors(super().make(arguments), arguments.run.num_envs / self.steps_per_second)


class PacedActors:
    """``actors``, with at least ``seconds`` between two steps."""

    def __init__(self, actors: Actors, seconds: float):
        self._actors, self._seconds, self._next = actors, seconds, 0.0

    def collect(self, limit: float, wait: bool) -> Collected:
        now = time.monotonic()
        time.sleep(max(0.0, self._next - now))
        self._next = max(self._next, now) + self._seconds
        return self._actors.collect(limit, wait)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._actors, name)
