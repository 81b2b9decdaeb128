"""The schema of ``bench.json``, the result of the bench.

Speeds are in the ``unit`` of their measurement, durations in seconds, moments in local time (ISO 8601).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

FILE, SCHEMA = "bench.json", 3

Pair = list[float | None]  # [reference, value] of neighbouring slices; [None, value] without a reference


@dataclass(frozen=True)
class Interval:
    """A median and its 95 % interval, by bootstrap over the pairs."""

    median: float
    low: float
    high: float

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Measurement:
    """One row: a whole training, or a part of one."""

    group: str  # "trainings", "check", "envs", "replay", "acting", "update", "transfer" or "limits"
    name: str  # unique in its group
    unit: str  # for example "agent steps/s"
    kind: str = "exact"  # or "equivalent", "changes the task", "changes the algorithm"
    overrides: list[str] = field(default_factory=list)  # of dqnspeed.train, against the reference
    pairs: list[Pair] = field(default_factory=list)  # in the order taken
    value: float | None = None  # median of the values; None with an error
    reference: float | None = None  # median of the references
    ratio: Interval | None = None  # value / reference of neighbouring slices
    parts: dict[str, float] = field(default_factory=dict)  # of a training: the share of time of each part
    error: str | None = None  # one sentence on why it could not be measured

    @property
    def within_noise(self) -> bool:
        """Whether the interval of the ratio contains 1."""
        return self.ratio is not None and self.ratio.contains(1)


@dataclass(frozen=True)
class Recommendation:
    """The recommended command, and whether it kept its promise."""

    overrides: list[str]
    line: str  # the whole command
    kinds: dict[str, str]  # the kind of change of each override
    expected: Interval  # gain over the baseline, from pairs measured after the choice
    measured: Interval | None = None  # gain of whole trainings, end to end
    sentence: str = ""


@dataclass(frozen=True)
class Result:
    """A whole bench, or as much of it as was measured."""

    command: str
    started: str
    suite: str  # "quick", "full" or "micro"
    env: str  # the game's id
    overrides: list[str]  # of everything measured, for example env=breakout
    machine: dict[str, Any]  # as in summary.json
    versions: dict[str, str]
    commit: str | None
    schema: int = SCHEMA
    ended: str | None = None  # null for a partial result
    disturbances: list[str] = field(default_factory=list)  # sentences on what spoils the figures
    measurements: list[Measurement] = field(default_factory=list)
    bottlenecks: list[str] = field(default_factory=list)  # sentences on what limits the speed
    recommendation: Recommendation | None = None

    def find(self, group: str, name: str) -> Measurement | None:
        return next((row for row in self.measurements if (row.group, row.name) == (group, name)), None)
