"""``bench.json``: the result of the bench; these classes are its schema.

Numbers are speeds in the ``unit`` of their measurement, times are in seconds unless said otherwise, and moments are
local times in ISO 8601.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from dqnspeed.system import atomic

FILE, SCHEMA = "bench.json", 1

Pair = list[float | None]  # [reference, value], neighbours in time; [None, value] where there is no reference


@dataclass(frozen=True)
class Interval:
    """A median and its 95 % interval, by bootstrap over the pairs."""

    median: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Floor:
    """What this machine could do at most."""

    what: str  # part of a sentence: "ALE's raw frames on these cores"
    share: float  # of it that was reached


@dataclass(frozen=True)
class Measurement:
    """One row: a piece or a rung."""

    group: str  # "envs", "replay", "acting", "update", "transfer", "rungs", "check" or "floors"
    name: str  # unique in its group
    unit: str  # "agent steps/s", say
    kind: str = "exact"  # or "equivalent", "changes the task", "changes the algorithm"
    overrides: list[str] = field(default_factory=list)  # of dqnspeed.train, that make this of the reference
    pairs: list[Pair] = field(default_factory=list)  # in the order taken
    value: float | None = None  # median of the values; None with an error
    reference: float | None = None  # median of the references
    ratio: Interval | None = None  # value / reference of neighbours
    floor: Floor | None = None
    parts: dict[str, float] = field(default_factory=dict)  # of a training, the share of the time that each part takes
    error: str | None = None  # one sentence on why it could not be measured

    @property
    def within_noise(self) -> bool:
        """Whether the interval holds 1."""
        return self.ratio is not None and self.ratio.holds(1)


@dataclass(frozen=True)
class Recommendation:
    """The line to paste, and whether it held what it promised."""

    overrides: list[str]
    line: str  # the whole command
    kinds: dict[str, str]  # the kind of change of each override
    expected: Interval  # gain over the baseline, from pairs that it was not chosen by
    measured: Interval | None = None  # gain of whole trainings, end to end
    sentence: str = ""


@dataclass(frozen=True)
class Result:
    """A whole bench, or as much of it as was measured."""

    command: str
    started: str
    suite: str  # "quick", "full" or "micro"
    env: str  # the game's id
    overrides: list[str]  # of everything that was measured: env=NAME and the like
    machine: dict[str, Any]  # as in summary.json
    versions: dict[str, str]
    commit: str | None
    schema: int = SCHEMA
    ended: str | None = None  # null until nothing of the suite is left to measure
    disturbances: list[str] = field(default_factory=list)  # sentences on what spoils the figures
    measurements: list[Measurement] = field(default_factory=list)
    walls: list[str] = field(default_factory=list)  # sentences that name what limits the speed
    recommendation: Recommendation | None = None

    def find(self, group: str, name: str) -> Measurement | None:
        return next((one for one in self.measurements if (one.group, one.name) == (group, name)), None)


def now() -> str:
    """This moment."""
    return datetime.now().isoformat(timespec="seconds")


def write(result: Result, path: Path) -> None:
    """Write ``result`` to ``path``, whole or not at all; raises :class:`OSError`."""
    atomic.write_json(path, dataclasses.asdict(result))
