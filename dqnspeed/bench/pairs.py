"""Paired measurements: reference and candidate take turns, and the ratio of neighbouring slices counts."""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from dqnspeed.bench.measured_process import MeasuredProcess, Speeds, measure_speeds
from dqnspeed.bench.result import Interval
from dqnspeed.config.options import ConfigError

RESAMPLES = 9999  # of the bootstrap
MIN_VALUES = 5  # of an interval


def check_statistics() -> None:
    """Raise :class:`ConfigError` if SciPy, which computes the intervals, is not installed."""
    if importlib.util.find_spec("scipy") is None:
        raise ConfigError("the bench needs scipy, which is not installed. Use pip install 'dqnspeed[bench]'.")


@dataclass(frozen=True)
class SamplingPlan:
    """How often and how long a piece is measured.

    Attributes:
        settle_s, slice_s: seconds of a slice that are left out, and seconds that count.
        num_pairs: slices of the candidate, and of its reference if there is one.
        start_s: estimated seconds for a process to start and to end.
    """

    settle_s: float
    slice_s: float
    num_pairs: int
    start_s: float = 4.0

    def seconds(self, paired: bool) -> float:
        """Estimated seconds for a piece with or without a reference."""
        return self.start_s + (1 + paired) * self.num_pairs * (self.settle_s + self.slice_s)


def take_turns(
    reference: Sequence[MeasuredProcess], candidate: Sequence[MeasuredProcess], sampling: SamplingPlan
) -> list[tuple[Speeds, Speeds]]:
    """Pairs of neighbouring slices of reference and candidate.

    Every other pair begins with the candidate, so that a drift of the machine favours neither.

    Args:
        reference: may be empty, for empty speeds; several processes of a side work at the same time.

    Raises:
        ProcessError: a process failed.
    """
    pairs = []
    for number in range(sampling.num_pairs):
        order = 1 if number % 2 == 0 else -1
        sides = (reference, candidate)[::order]
        first, second = (measure_speeds(side, sampling.settle_s, sampling.slice_s) if side else {} for side in sides)
        pairs.append((first, second) if order == 1 else (second, first))
    return pairs


def interval(values: Sequence[float]) -> Interval | None:
    """The median with its 95 % interval by the percentile bootstrap; ``None`` for fewer than five values.

    Equal values always give equal intervals. The interval of five values is their range.
    """
    if len(values) < MIN_VALUES:
        return None
    import numpy as np
    from scipy.stats import bootstrap

    found = bootstrap(
        (np.asarray(values),), np.median, n_resamples=RESAMPLES, method="percentile",
        random_state=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    low, high = max(float(found.low), min(values)), min(float(found.high), max(values))  # rounding can exceed them
    return Interval(statistics.median(values), low, high)
