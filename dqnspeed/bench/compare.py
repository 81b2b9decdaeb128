"""``compare=OLD.json NEW.json``: what became faster or slower between two results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

from dqnspeed.bench import result
from dqnspeed.bench.result import Interval, Measurement, Result
from dqnspeed.bench.rows import NONE, Column, label, number, times
from dqnspeed.bench.show import console_of_any_width, tabulate
from dqnspeed.cli.errors import RunError
from dqnspeed.config.options import ConfigError
from dqnspeed.tracking.run_folder import DamagedError

FEWEST = 3  # repeats on each side for an interval
RESAMPLES = 2000
STYLES = {"faster": "bold green", "slower": "bold red"}
HERE = ("cpu", "cores", "gpu", "device", "platform", "omp")  # of the machine, what speeds depend on


@dataclass(frozen=True)
class Change:
    """A piece that stands in both results."""

    old: Measurement
    new: Measurement
    ratio: Interval | None  # new / old; None if one was not measured, or too seldom

    @property
    def verdict(self) -> str:
        if self.ratio is None:
            failed = next((one.error for one in (self.new, self.old) if one.error), None)
            return f"not measured: {failed}" if failed else "too few repeats"
        if self.ratio.holds(1):
            return "within noise"
        return "faster" if self.ratio.median > 1 else "slower"

    def fell_below(self, bound: float) -> bool:
        """Whether it surely fell: its whole interval lies below ``bound``, or it can no longer be measured."""
        if self.new.error is not None and self.old.error is None:
            return True
        return self.ratio is not None and self.ratio.high < bound


def command(old: Path, new: Path, fail_below: float | None, console: Console | None = None) -> None:
    """Print the comparison of two files, or folders, of results.

    Raises:
        ConfigError: one cannot be read.
        RunError: pieces fell below ``fail_below`` times their speed; all is printed.
    """
    before, after = _read(old), _read(new)
    changes = compare(before, after)
    if not changes:
        raise ConfigError(f"{old}: has no piece in common with {new}.")
    console = console or console_of_any_width()
    for sentence in differences(before, after):
        console.print(Text(sentence, "yellow"), soft_wrap=True)
    tell(changes, console)
    if fail_below is not None:
        hold(changes, fail_below)


def _read(path: Path) -> Result:
    try:
        return result.read(path)
    except DamagedError as error:
        raise ConfigError(str(error)) from error


def compare(old: Result, new: Result) -> list[Change]:
    """The pieces that both have."""
    found = []
    for after in new.measurements:
        if before := old.find(after.group, after.name):
            found.append(Change(before, after, _ratio(_values(after), _values(before))))
    return found


def _values(measurement: Measurement) -> list[float]:
    return [value for _, value in measurement.pairs if value] if measurement.error is None else []


def _ratio(new: Sequence[float], old: Sequence[float]) -> Interval | None:
    """The ratio of the medians with its 95 % interval, by bootstrap over the repeats of each (Efron, 1979)."""
    if min(len(new), len(old)) < FEWEST:
        return None
    random = np.random.default_rng(0)
    above, below = (np.median(random.choice(values, (RESAMPLES, len(values))), axis=1) for values in (new, old))
    low, high = np.quantile(above / below, [0.025, 0.975])
    return Interval(float(np.median(new) / np.median(old)), float(low), float(high))


def differences(old: Result, new: Result) -> Iterator[str]:
    """Sentences on what makes two results hard to compare."""
    for name, one in (("The older", old), ("The newer", new)):
        if not one.complete:
            yield f"{name} result is partial."
    pairs = {key: (getattr(old, key), getattr(new, key)) for key in ("suite", "env", "seed", "overrides")}
    pairs |= {f"machine.{key}": (old.machine.get(key), new.machine.get(key)) for key in HERE}
    packages = sorted({*old.versions, *new.versions})
    pairs |= {f"versions.{key}": (old.versions.get(key), new.versions.get(key)) for key in packages}
    for key, (before, after) in pairs.items():
        if before != after:
            yield f"{key} differs: {_shown(before)} before, {_shown(after)} now."
    for name, one, other in (("the older", old, new), ("the newer", new, old)):
        alone = [f"{m.group} {label(m)}" for m in one.measurements if other.find(m.group, m.name) is None]
        if alone:
            yield f"In {name} result alone: {'; '.join(alone)}."
    yield from _machine_itself(old, new)


def _machine_itself(old: Result, new: Result) -> Iterator[str]:
    """How the floors moved, which are measured without code of this project."""
    moved: dict[str, list[float]] = {}
    for after in new.measurements:
        before = old.find(after.group, after.name)
        if before and before.floor and after.floor and before.floor.what == after.floor.what and before.floor.most:
            moved.setdefault(after.floor.what, []).append(after.floor.most / before.floor.most)
    for what, ratios in moved.items():
        yield f"The machine itself, {what}: {np.median(ratios):.2f}×."


def _shown(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def tell(changes: Sequence[Change], console: Console) -> None:
    """Print the table, and how much of it chance alone would mark."""
    columns: list[Column] = [
        ("", [f"{change.new.group} {label(change.new)}" for change in changes]),
        ("ratio", [times(change.ratio) for change in changes]),
        ("", [change.verdict if change.ratio or not change.new.error else NONE for change in changes]),
        ("before", [number(change.old.value) for change in changes]),
        ("now", [number(change.new.value) for change in changes]),
        ("unit", [change.new.unit for change in changes]),
    ]
    console.print(tabulate(columns, [STYLES.get(change.verdict, "") for change in changes], console.width))
    moved = sum(change.verdict in STYLES for change in changes)
    sure = sum(change.ratio is not None for change in changes)
    console.print(
        Text(f"{moved} of {sure} moved; by chance alone about {0.05 * sure:.0f} would (95 % intervals)."), soft_wrap=True
    )


def hold(changes: Sequence[Change], bound: float) -> None:
    """Raise :class:`RunError` if a piece surely fell below ``bound`` times its speed."""
    fallen = [f"{change.new.group} {label(change.new)}" for change in changes if change.fell_below(bound)]
    if fallen:
        raise RunError(f"fail_below={bound:g}: {len(fallen)} fell below: {'; '.join(fallen)}.")
