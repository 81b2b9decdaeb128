"""Compare two results of the bench: ``python tools/compare_results.py OLD NEW [fail_below=0.9]``.

The machine may have changed between the two measurements. The rows of ``limits`` use no code of this project: if they
changed, so did the machine.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dqnspeed.bench.pairs import MIN_VALUES, RESAMPLES, check_statistics
from dqnspeed.bench.plan import LIMITS
from dqnspeed.bench.report import NOISE, number, times
from dqnspeed.bench.result import Interval, Measurement
from dqnspeed.bench.session import REFERENCE_FAILED
from dqnspeed.cli.app import run_app
from dqnspeed.cli.errors import RunError
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.config.options import ConfigError, option


@dataclass(frozen=True)
class Options:
    fail_below: float | None = option("exit code 1 if a piece fell below this ratio", gt=0, default=None)


COMMAND_LINE = CommandLine(
    "python tools/compare_results.py OLD NEW [fail_below=0.9]",
    "Compare two files bench.json.",
    Options,
    others="two files bench.json",
)


def _main() -> None:
    options, files = COMMAND_LINE.read(sys.argv[1:])
    if len(files) != 2:
        raise ConfigError(f"{' '.join(files) or 'OLD NEW'}: takes two files bench.json. Name an older and a newer one.")
    check_statistics()
    old, new = map(_read, files)
    for key in ("suite", "env", "overrides", "machine", "versions"):
        if old[key] != new[key]:
            print(f"{key} differs: {old[key]} before, {new[key]} now.")
    before, now = ({(row["group"], row["name"]): row for row in one["measurements"]} for one in (old, new))
    for group, name in before.keys() ^ now.keys():
        print(f"{group}: {name}: only in one result.")
    print_changes([_compared(before[key], now[key]) for key in now if key in before], options.fail_below)


def _read(name: str) -> Any:
    try:
        return json.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name}: cannot be read ({error}). Name a file bench.json.") from error


def _compared(old: Any, new: Any) -> Measurement:
    """The row of ``new`` with the row of ``old`` as its reference."""
    before, now = ([value for _, value in row["pairs"] if value and not row["error"]] for row in (old, new))
    error = f"{REFERENCE_FAILED}{old['error']}" if old["error"] else new["error"]
    return Measurement(
        new["group"], new["name"], new["unit"], value=new["value"], reference=old["value"], error=error,
        ratio=_ratio(now, before) if min(len(before), len(now)) >= MIN_VALUES else None,
    )  # fmt: skip


def _ratio(new: Sequence[float], old: Sequence[float]) -> Interval:
    """The ratio of the medians with its 95 % interval, by the percentile bootstrap over the repeats of each."""
    from scipy.stats import bootstrap

    def ratio(above: np.ndarray, below: np.ndarray, axis: int) -> np.ndarray:
        return np.asarray(np.median(above, axis=axis) / np.median(below, axis=axis))

    found = bootstrap(
        (np.asarray(new), np.asarray(old)), ratio, n_resamples=RESAMPLES, method="percentile",
        random_state=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    return Interval(statistics.median(new) / statistics.median(old), float(found.low), float(found.high))


def print_changes(rows: Sequence[Measurement], fail_below: float | None) -> None:
    """Print how the speed of each piece changed.

    Raises:
        RunError: the interval of a piece lies below ``fail_below``, or the piece can no longer be measured. Limits of
            the machine do not count.
    """
    slower = []
    for row in rows:
        name, ratio = f"{row.group}: {row.name}", row.ratio
        if ratio is None:
            print(f"{name}: {row.error or 'fewer than five repeats, so no interval.'}")
            is_slower = row.error is not None and not row.error.startswith(REFERENCE_FAILED)
        else:
            verdict = NOISE if row.within_noise else "faster" if ratio.median > 1 else "slower"
            speeds = f"{number(row.reference)} before, {number(row.value)} {row.unit} now"
            print(f"{times(ratio):<22} {verdict:<12} {name}: {speeds}")
            is_slower = fail_below is not None and ratio.high < fail_below
        if is_slower and row.group != LIMITS:
            slower.append(name)
    if fail_below is not None and slower:
        raise RunError(f"fail_below={fail_below:g}: {len(slower)} of {len(rows)} fell below: {'; '.join(slower)}.")


if __name__ == "__main__":
    run_app(_main)
