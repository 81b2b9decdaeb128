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

MAX_RUNS = 50  # newest runs that are read
QUARTILES_FROM = 4  # solved runs from which on quartiles are shown; below, the whole range
SAME_MACHINE = ("cpu", "cores", "device", "gpu")
LIMITS = ("max_minutes", "max_steps")  # reasons that end a run without a solution

Mean = tuple[float, float]  # best mean return so far, and the seconds at which it was reached


@dataclass(frozen=True)
class EarlierRuns:
    """Earlier runs of a configuration.

    Attributes:
        solved: for each solved run its rising mean returns; the last one is the bound.
        runs: number of runs that were solved or met a limit.
    """

    solved: tuple[tuple[Mean, ...], ...] = ()
    runs: int = 0

    def sentence(self) -> str:
        """Sentence on the time to solve; empty if no run was solved."""
        if not self.solved:
            return ""
        took = _range([means[-1][1] for means in self.solved])
        whose = "the only earlier run" if self.runs == 1 else f"{len(self.solved)} of {self.runs} earlier runs"
        return f"{'usually ' if self.is_usual else ''}solved after {took} here ({whose})"

    @property
    def is_usual(self) -> bool:
        """Whether at least half of the runs were solved."""
        return bool(self.solved) and 2 * len(self.solved) >= self.runs

    def left(self, mean: float) -> tuple[str, float] | None:
        """Time left of a run with this ``mean`` return, in words, and its median in seconds.

        ``None`` if fewer than half of the runs were solved.
        """
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
    """Find the newest comparable runs below ``places``.

    Comparable runs ended by themselves, had this machine to themselves, and differ in nothing but their seed and what
    they recorded. Runs that cannot be read are skipped.

    Args:
        config: options as plain data.
        machine: result of :func:`dqnspeed.system.machine.describe`.
        but: folder of the present run, which is left out.
    """
    wanted, solved, runs = _compared(config), [], 0
    others = (folder for folder in _newest(places) if but is None or folder.resolve() != but.resolve())
    for folder in itertools.islice(others, MAX_RUNS):
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
    """Folders of runs that have ended, the newest first."""
    ended = dict[Path, float]()
    for folder in holding(map(Path, places), SUMMARY):
        with contextlib.suppress(OSError):
            ended[folder] = (folder / SUMMARY).stat().st_mtime
    return sorted(ended, key=lambda folder: ended[folder], reverse=True)


def _means(folder: Path, bound: float) -> Iterator[Mean]:
    """Mean returns below ``bound`` that were the best so far."""
    best = -math.inf
    for row in read_metrics(folder)[0]:
        mean = row.get("episode/return_mean_100", math.nan)
        if best < mean < bound:
            best = mean
            yield mean, row["time"] + row.get(EVALUATING, 0.0)


def _range(seconds: list[float]) -> str:
    """Range of the middle half in words; of all values if there are few."""
    ends = np.percentile(seconds, (25, 75) if len(seconds) >= QUARTILES_FROM else (0, 100))
    scale, unit = (60, "min") if ends[1] >= 900 else (1, "s")
    if not round(ends[1]):
        return "moments"
    low, high = (f"{end / scale:.0f}" for end in ends)
    return f"{high} {unit}" if low == high else f"{low} to {high} {unit}"
