"""``bench.json``: what the bench found. Written and read here alone; its schema is that of these classes.

Numbers are speeds in the ``unit`` of their measurement, times are in seconds unless said otherwise, and moments are
local times in ISO 8601.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from dqnspeed.system import atomic
from dqnspeed.tracking.run_folder import DamagedError

FILE, SCHEMA = "bench.json", 1

Pair = list[float | None]  # [reference, value], neighbours in time; [None, value] where there is no reference
T = TypeVar("T")


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
    most: float  # in the unit of the measurement
    share: float  # value / most


@dataclass(frozen=True)
class Measurement:
    """One row: a piece, a rung or a peer."""

    group: str  # "envs", "resize", "replay", "acting", "update", "transfer", "rungs", "peers" or "check"
    name: str  # unique in its group
    unit: str  # "agent steps/s", say
    kind: str = "exact"  # or "equivalent", "changes the task", "changes the algorithm"
    overrides: list[str] = field(default_factory=list)  # of dqnspeed.train, that make this of the reference
    pairs: list[Pair] = field(default_factory=list)  # in the order taken
    value: float | None = None  # median of the values; None with an error
    reference: float | None = None  # median of the references
    ratio: Interval | None = None  # value / reference of neighbours
    updates: float | None = None  # updates/s, where there are any
    floor: Floor | None = None
    parts: dict[str, float] = field(default_factory=dict)  # of a training, the share of the time that each part takes
    error: str | None = None  # one sentence on why it could not be measured
    version: str | None = None  # of a peer

    @property
    def within_noise(self) -> bool:
        """Whether the interval holds 1."""
        return self.ratio is not None and self.ratio.holds(1)


@dataclass(frozen=True)
class Disturbances:
    """Sentences on what spoils the figures, found before and after measuring."""

    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Recommendation:
    """The line to paste, and whether it held what it promised."""

    overrides: list[str]
    line: str  # the whole command
    kinds: dict[str, str]  # the kind of change of each override
    expected: Interval  # gain over the baseline, from pairs that it was not chosen by
    measured: Interval | None = None  # gain of whole trainings, end to end
    agrees: bool | None = None  # whether the two intervals meet; None without a check
    sentence: str = ""


@dataclass(frozen=True)
class ToSolve:
    """The recipe with the shortest time to solve the game."""

    line: str
    about: str  # what a run of it usually takes, and where that was measured


@dataclass(frozen=True)
class Result:
    """A whole bench, or as much of it as was measured."""

    command: str
    started: str
    suite: str  # "quick", "full", "micro" or "peers"
    env: str  # the game's id
    seed: int
    overrides: list[str]  # of everything that was measured: env=NAME and the like
    machine: dict[str, Any]  # as in summary.json
    versions: dict[str, str]
    commit: str | None
    peers: bool = False  # other libraries are wanted, too
    allow: str | None = None  # kinds of change that the line may make, besides exact and equivalent ones
    schema: int = SCHEMA
    ended: str | None = None
    complete: bool = False  # nothing of the suite is left to measure
    disturbances: Disturbances = field(default_factory=Disturbances)
    measurements: list[Measurement] = field(default_factory=list)
    walls: list[str] = field(default_factory=list)  # sentences that name what limits the speed
    recommendation: Recommendation | None = None
    to_solve: ToSolve | None = None

    def find(self, group: str, name: str) -> Measurement | None:
        return next((one for one in self.measurements if (one.group, one.name) == (group, name)), None)


def now() -> str:
    """This moment."""
    return datetime.now().isoformat(timespec="seconds")


def write(result: Result, path: Path) -> None:
    """Write ``result`` to ``path``, whole or not at all; raises :class:`OSError`."""
    atomic.write_json(path, dataclasses.asdict(result))


def read(path: Path) -> Result:
    """The result in ``path``, or in the folder ``path``.

    Raises:
        DamagedError: it cannot be read; the sentence names the line or the key at fault.
    """
    path = path / FILE if path.is_dir() else path
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise DamagedError(f"{path}: is damaged (line {line} is not UTF-8).") from error
    try:
        node = json.loads(text)
    except ValueError as error:
        where = f"line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise DamagedError(f"{path}: is damaged ({where}).") from error
    if isinstance(node, dict) and isinstance(node.get("schema"), int) and node["schema"] != SCHEMA:
        raise DamagedError(f"{path}: has schema {node['schema']}, and this version reads {SCHEMA}.")
    try:
        return _read(Result, node, "")
    except _WrongError as error:
        raise DamagedError(f"{path}: is no bench.json or is damaged ({error}).") from None


class _WrongError(Exception):
    """A value is not of its type; the message names its key."""


def _read(kind: type[T], node: Any, key: str) -> T:
    """``node`` of JSON as the dataclass ``kind``; keys that it does not know are left out."""
    if not isinstance(node, Mapping):
        raise _WrongError(f"{key or 'it'} is no object")
    values = {}
    hints = get_type_hints(kind)
    for one in dataclasses.fields(typing.cast("Any", kind)):
        name = f"{key}.{one.name}".lstrip(".")
        if one.name in node:
            values[one.name] = _value(hints[one.name], node[one.name], name)
        elif one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING:
            raise _WrongError(f"{name} is missing")
    return kind(**values)


def _value(kind: Any, node: Any, key: str) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        if node is None and type(None) in get_args(kind):
            return None
        [kind] = [one for one in get_args(kind) if one is not type(None)]
    if dataclasses.is_dataclass(kind):
        return _read(typing.cast("Any", kind), node, key)
    if get_origin(kind) is list and isinstance(node, list):
        return [_value(get_args(kind)[0], item, f"{key}[{i}]") for i, item in enumerate(node)]
    if get_origin(kind) is dict and isinstance(node, dict):
        return {name: _value(get_args(kind)[1], item, f"{key}.{name}") for name, item in node.items()}
    if kind is Any:
        return node
    number = kind is float and isinstance(node, int) and not isinstance(node, bool)
    if number or (type(node) is kind):
        return float(node) if number else node
    raise _WrongError(f"{key} is {json.dumps(node)[:60]}")
