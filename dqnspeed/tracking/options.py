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
    """An option of ``tracking``: the usual trackers as its numbers switch them on, and further ones of a subclass."""

    def further(
        self, folder: Path, config: Mapping[str, Any], name: str, resumed_at: int | None
    ) -> Iterator[tuple[str, Callable[[], Tracker]]]:
        """What each further tracker is called, and what makes it.

        Args:
            folder: of the run; ``config`` its configuration as plain data; ``name`` what it is called among others.
            resumed_at: the agent step at which it is resumed, ``None`` for a new run.
        """
        yield from ()


@register("tracking", "standard")
@dataclass(frozen=True)
class Standard(Tracking):
    """The usual trackers, and no others."""
