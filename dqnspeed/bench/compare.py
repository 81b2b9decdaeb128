"""``compare=OLD.json NEW.json``: what became faster or slower between two results."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from dqnspeed.bench import result as results
from dqnspeed.bench.pairs import RESAMPLES, check_statistics
from dqnspeed.bench.result import Interval, Measurement, Result
from dqnspeed.bench.rows import NOISE, Column, label, number, times
from dqnspeed.bench.show import console_of_any_width, tabulate
from dqnspeed.cli.errors import RunError
from dqnspeed.config.options import ConfigError
from dqnspeed.tracking.run_folder import DamagedError

FEWEST = 3  # repeats on each side for an interval
NOT_OURS = ("floors", "peers")  # groups that no change of this project moves
STYLES = {"faster": "bold green", "slower": "bold red"}
SAME = ("cpu", "cores", "gpu", "device", "platform", "omp")  # of the machine, what speeds depend on


@dataclass(frozen=True)
class Change:
    """A piece that stands in both results; ``ratio`` is new / old, ``None`` without enough repeats."""

    old: Measurement
    new: Measurement
    ratio: Interval | None

    @property
    def name(self) -> str:
        return f"{self.new.group}: {label(self.new)}"

    @property
    def verdict(self) -> str:
        if self.ratio is None:
            return "too few repeats"
        if self.ratio.holds(1):
            return NOISE
        return "faster" if self.ratio.median > 1 else "slower"

    @property
    def failed(self) -> str | None:
        """Why it cannot be compared."""
        return self.new.error or self.old.error

    def fell_below(self, bound: float) -> bool:
        """Whether it surely fell below ``bound``: its whole interval lies there, or it cannot be measured any more."""
        if self.new.error and not self.old.error:
            return True
        return self.ratio is not None and self.ratio.high < bound


def command(old: Path, new: Path, fail_below: float | None, console: Console | None = None) -> None:
    """Print the comparison of two results, each a file or its folder.

    Raises:
        ConfigError: one cannot be read, or they have nothing in common.
        RunError: pieces fell below ``fail_below`` times their speed; all is printed.
    """
    check_statistics()
    try:
        before, after = results.read(old), results.read(new)
    except DamagedError as error:
        raise ConfigError(str(error)) from error
    changes = compare(before, after)
    if not changes:
        raise ConfigError(f"{old}: has no piece in common with {new}.")
    console = console or console_of_any_width()
    for sentence in differences(before, after):
        console.print(Text(sentence, "yellow"), soft_wrap=True)
    tell(changes, console)
    if fail_below is not None:
        hold(changes, fail_below)


def compare(old: Result, new: Result) -> list[Change]:
    """The pieces that both have."""
    pairs = ((old.find(one.group, one.name), one) for one in new.measurements)
    return [Change(before, after, _ratio(_values(after), _values(before))) for before, after in pairs if before]


def _values(measurement: Measurement) -> list[float]:
    return [] if measurement.error else [value for _, value in measurement.pairs if value]


def _ratio(new: Sequence[float], old: Sequence[float]) -> Interval | None:
    """The ratio of the medians with its 95 % interval, by the percentile bootstrap over the repeats of each."""
    if min(len(new), len(old)) < FEWEST:
        return None
    import numpy as np
    from scipy.stats import bootstrap

    def ratio(above: np.ndarray, below: np.ndarray, axis: int) -> np.ndarray:
        return np.asarray(np.median(above, axis=axis) / np.median(below, axis=axis))

    found = bootstrap(
        (np.asarray(new), np.asarray(old)), ratio, n_resamples=RESAMPLES, method="percentile",
        random_state=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    return Interval(statistics.median(new) / statistics.median(old), float(found.low), float(found.high))


def differences(old: Result, new: Result) -> Iterator[str]:
    """Sentences on what else than a change of the code may have moved the speeds, and on what cannot be compared."""
    for name, one in (("older", old), ("newer", new)):
        if not one.complete:
            yield f"The {name} result is partial."
    facts = {key: (getattr(old, key), getattr(new, key)) for key in ("suite", "env", "seed", "overrides")}
    facts |= {key: (old.machine.get(key), new.machine.get(key)) for key in SAME}
    facts |= {key: (old.versions.get(key), new.versions.get(key)) for key in {**old.versions, **new.versions}}
    for key, (before, after) in facts.items():
        if before != after:
            yield f"{key} is not the same: {before} before, {after} now."
    for name, one, other in (("older", old, new), ("newer", new, old)):
        if alone := [f"{row.group}: {label(row)}" for row in one.measurements if not other.find(row.group, row.name)]:
            yield f"The {name} result alone has {'; '.join(alone)}."


def tell(changes: Sequence[Change], console: Console) -> None:
    """Print the table, and how many chance alone would mark."""
    whole = [change for change in changes if not change.failed]
    columns: list[Column] = [
        ("", [change.name for change in whole]),
        ("ratio", [times(change.ratio) for change in whole]),
        ("", [change.verdict for change in whole]),
        ("before", [number(change.old.value) for change in whole]),
        ("now", [f"{number(change.new.value)} {change.new.unit}" for change in whole]),
    ]
    console.print(tabulate(columns, [STYLES.get(change.verdict, "dim") for change in whole], console.width))
    for change in changes:
        if change.failed:
            console.print(Text(f"{change.name}: {change.failed}", "red"), soft_wrap=True)
    known = sum(change.ratio is not None for change in whole)
    moved = sum(change.verdict in STYLES for change in whole)
    sentence = f"{moved} of {known} moved; by chance alone it would be about {0.05 * known:.0f}, at 95 % intervals."
    console.print(Text(sentence), soft_wrap=True)


def hold(changes: Sequence[Change], bound: float) -> None:
    """Raise :class:`RunError` if a piece fell below ``bound`` times its speed."""
    ours = [change for change in changes if change.new.group not in NOT_OURS]
    fallen = [change.name for change in ours if change.fell_below(bound)]
    if fallen:
        raise RunError(f"fail_below={bound:g}: {len(fallen)} of {len(ours)} fell below: {'; '.join(fallen)}.")
