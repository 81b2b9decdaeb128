"""Earlier runs of a configuration on this machine: how long they took to solve, and what a run like them has left."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dqnspeed.tracking.run_folder import (
    CONFIG,
    EVALUATING,
    RUNS,
    SUMMARY,
    DamagedError,
    holding,
    read_metrics,
    read_summary,
)
from dqnspeed.tracking.trackers import hyperparameters

NEWEST = 50  # runs that are looked at
QUARTILES_FROM = 4  # as many solved runs; of fewer the whole range is told
SAME_MACHINE = ("cpu", "cores", "device", "gpu")
LIMITS = ("max_minutes", "max_steps")  # what ends a run that had all its time

Mean = tuple[float, float]  # the best mean return so far, and the seconds of the run at which it was reached


@dataclass(frozen=True)
class EarlierRuns:
    """What became of earlier runs.

    Attributes:
        solved: of each solved run its means, rising, of which the last is the bound.
        runs: all of them, those that met a limit too.
    """

    solved: tuple[tuple[Mean, ...], ...] = ()
    runs: int = 0

    def sentence(self) -> str:
        """How long they took; empty if none was solved."""
        if not self.solved:
            return ""
        took = _range([means[-1][1] for means in self.solved])
        whose = "the only earlier run" if self.runs == 1 else f"{len(self.solved)} of {self.runs} earlier runs"
        return f"{'usually ' if self.is_usual else ''}solved after {took} here ({whose})"

    @property
    def is_usual(self) -> bool:
        """Whether at least half of them were solved, so that one more can be expected to be."""
        return bool(self.solved) and 2 * len(self.solved) >= self.runs

    def left(self, mean: float) -> tuple[str, float] | None:
        """How long a run with this ``mean`` return usually has left, in words, and the median of it, seconds; ``None``
        if fewer than half of them were solved."""
        if not self.is_usual:
            return None
        mean = -math.inf if math.isnan(mean) else mean
        left = [
            means[-1][1] - means[min(bisect_right(means, (mean, math.inf)), len(means) - 1)][1] for means in self.solved
        ]
        return f"usually {_range(left)} left", float(np.median(left))


def earlier_runs(
    config: Mapping[str, Any], machine: Mapping[str, Any], places: Iterable[str] = RUNS, but: Path | None = None
) -> EarlierRuns:
    """The newest runs below ``places`` that had this configuration on this machine to themselves, whatever their seed
    and what they recorded, and came to an end; those that cannot be read are passed over.

    Args:
        config: a configuration as plain data; ``machine``: as :func:`dqnspeed.system.machine.describe` has it.
        but: the folder of this run, which may be one that is resumed.
    """
    wanted, solved, runs = _compared(config), [], 0
    others = (folder for folder in _newest(places) if but is None or folder.resolve() != but.resolve())
    for folder in itertools.islice(others, NEWEST):
        with contextlib.suppress(DamagedError, OSError, ValueError, AttributeError, KeyError, TypeError):
            summary = read_summary(folder)
            ended = summary["solved"] or summary["stopped_by"] in LIMITS
            comparable = ended and summary["benchmark"] and not summary["time_is_lower_bound"]
            if not comparable or any(summary["machine"][name] != machine[name] for name in SAME_MACHINE):
                continue
            if _compared(json.loads((folder / CONFIG).read_text(encoding="utf-8"))) != wanted:
                continue
            if summary["solved"]:
                bound = float(summary["reward_bound"])
                seconds = summary["time_to_solve_s"] + summary["eval_time_s"]
                solved.append((*_means(folder, bound), (bound, seconds)))
            runs += 1
    return EarlierRuns(tuple(solved), runs)


def _compared(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in hyperparameters(config).items() if key not in ("seed", "experiment")}


def _newest(places: Iterable[str]) -> list[Path]:
    """The folders of runs that have ended, the newest first."""
    ended = dict[Path, float]()
    for folder in holding(map(Path, places), SUMMARY):
        with contextlib.suppress(OSError):
            ended[folder] = (folder / SUMMARY).stat().st_mtime
    return sorted(ended, key=lambda folder: ended[folder], reverse=True)


def _means(folder: Path, bound: float) -> Iterator[Mean]:
    """The means below ``bound`` that were the best so far."""
    best = -math.inf
    for row in read_metrics(folder)[0]:
        mean = row.get("episode/return_mean_100", math.nan)
        if best < mean < bound:
            best = mean
            yield mean, row["time"] + row.get(EVALUATING, 0.0)


def _range(seconds: list[float]) -> str:
    """The middle half of them in words, or all of them if they are few."""
    ends = np.percentile(seconds, (25, 75) if len(seconds) >= QUARTILES_FROM else (0, 100))
    scale, unit = (60, "min") if ends[1] >= 900 else (1, "s")
    if not round(ends[1]):
        return "moments"
    low, high = (f"{end / scale:.0f}" for end in ends)
    return f"{high} {unit}" if low == high else f"{low} to {high} {unit}"
