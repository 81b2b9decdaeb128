"""A file of one line that says where a run stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.system import atomic
from dqnspeed.tracking import Tracker
from dqnspeed.tracking.base import Tracking


@register("tracking", "status")
@dataclass(frozen=True)
class Status(Tracking):
    """The usual trackers, and a status file in the run's folder."""

    status_file: str = option("name of the status file", default="status.txt")

    def further(
        self, folder: Path, config: Mapping[str, Any], name: str, resumed_at: int | None
    ) -> Iterator[tuple[str, Callable[[], Tracker]]]:
        yield "the status file", lambda: StatusFile(folder / self.status_file, name)


class StatusFile(Tracker):
    def __init__(self, path: Path, name: str):
        self._path, self._name = path, name

    def report(self, metrics: Mapping[str, float], step: int, seconds: float) -> None:
        mean = metrics.get("episode/return_mean_100", float("nan"))
        self._write(f"{step:,} agent steps in {seconds:.0f} s, mean return {mean:.1f}")

    def close(self, summary: Mapping[str, Any]) -> None:
        self._write(f"ended by {summary['stopped_by']}")

    def _write(self, text: str) -> None:
        atomic.write_text(self._path, f"{self._name}: {text}\n")
