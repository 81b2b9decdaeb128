"""Paired measuring: reference and candidate take turns, and what counts is the ratio of neighbours."""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dqnspeed.bench.measured_process import Speeds, Subject, speeds_of
from dqnspeed.bench.result import Interval
from dqnspeed.config.options import ConfigError

RESAMPLES = 9999
FEWEST = 5  # values for an interval


def check_statistics() -> None:
    """Raise :class:`ConfigError` if what estimates intervals is not installed."""
    if importlib.util.find_spec("scipy") is None:
        raise ConfigError("the bench needs scipy; pip install 'dqnspeed[bench]' brings it.")


@dataclass(frozen=True)
class Pace:
    """How long things are measured.

    Attributes:
        settle_s: seconds of a slice that are left out, in which caches fill and waiting threads wake.
        slice_s: seconds that count; a slice ends with the next whole event.
        min_pairs, max_pairs: after the former it ends as soon as the interval is narrower than ``narrow``.
        start_s: an estimate of what a process takes to start and to end.
    """

    settle_s: float
    slice_s: float
    min_pairs: int
    max_pairs: int
    narrow: float = 0.03
    start_s: float = 4.0

    def seconds(self, paired: bool) -> float:
        """What it takes at most, but for events that take longer than a slice."""
        return self.start_s + (1 + paired) * self.max_pairs * (self.settle_s + self.slice_s)


def take_turns(
    reference: Sequence[Subject],
    candidate: Sequence[Subject],
    pace: Pace,
    judged: Callable[[Speeds | None, Speeds], float],
) -> Iterator[tuple[Speeds | None, Speeds]]:
    """Pairs of neighbouring slices; every other pair begins with the candidate, so that a drift favours neither.

    Args:
        reference: empty if there is none; several processes of a side work at the same time.
        judged: the number of a pair whose interval is to become narrow.

    Raises:
        SubjectError: a process failed.
    """
    found = list[float]()
    while len(found) < pace.max_pairs and not (len(found) >= pace.min_pairs and _is_narrow(found, pace.narrow)):
        first, before = len(found) % 2 == 0, None
        if reference and first:
            before = speeds_of(reference, pace.settle_s, pace.slice_s)
        value = speeds_of(candidate, pace.settle_s, pace.slice_s)
        if reference and not first:
            before = speeds_of(reference, pace.settle_s, pace.slice_s)
        found.append(judged(before, value))
        yield before, value


def _is_narrow(values: Sequence[float], narrow: float) -> bool:
    found = interval(values)
    return found is not None and found.high - found.low <= narrow * found.median


def interval(values: Sequence[float]) -> Interval | None:
    """The median of ``values`` and its 95 % interval, by the percentile bootstrap; ``None`` for fewer than five.

    The same values always give the same interval. With five values it reaches from the least to the largest.
    """
    if len(values) < FEWEST:
        return None
    import numpy as np
    from scipy.stats import bootstrap

    found = bootstrap(
        (np.asarray(values),), np.median, n_resamples=RESAMPLES, method="percentile",
        random_state=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    low, high = max(float(found.low), min(values)), min(float(found.high), max(values))  # but for rounding
    return Interval(statistics.median(values), low, high)
