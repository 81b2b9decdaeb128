"""The options of ``tracking``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dqnspeed.config.registry import register
from dqnspeed.config.schema import TrackingConfig
from dqnspeed.tracking.base import Tracker


@dataclass(frozen=True)
class Tracking(TrackingConfig):
    """An option of ``tracking``: the usual trackers, as switched on, and more that a subclass adds."""

    def further(
        self, folder: Path, config: Mapping[str, Any], name: str, resumed_at: int | None
    ) -> Iterator[tuple[str, Callable[[], Tracker]]]:
        """The name and the maker of each further tracker.

        Args:
            folder: of the run; ``config``: its configuration as plain data; ``name``: its name.
            resumed_at: the agent step at which it is resumed, ``None`` for a new run.
        """
        yield from ()


@register("tracking", "standard")
@dataclass(frozen=True)
class Standard(Tracking):
    """The usual trackers only."""
