"""Statistics over seeds: means and medians with their intervals, and times of which some are only known to be longer.

Intervals are those between the 2.5th and the 97.5th percentile of a stratified bootstrap, as in Agarwal et al., "Deep
Reinforcement Learning at the Edge of the Statistical Precipice" (2021), section 4: each stratum is resampled by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
FEWEST = 5  # runs of a stratum for an interval; a bootstrap over fewer says more than they know
PERCENTILES = 2.5, 97.5
HALF = 0.5 + 1e-9, 0.5 - 1e-9  # a bit above and a bit below what products of shares come to
# Of arrays (resamples, runs) or (resamples, runs, 2), one a stratum, one value a resample.
Statistic = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Estimate:
    """A value and its interval; without one where a stratum has fewer than :data:`FEWEST` runs. Infinite: longer than
    was tried."""

    value: float
    low: float | None = None
    high: float | None = None


def estimate(statistic: Statistic, *strata: Sequence[float] | Sequence[tuple[float, bool]]) -> Estimate | None:
    """``statistic`` of the ``strata`` with its interval, the same at every call; ``None`` if one of them is empty."""
    arrays = [np.asarray(stratum, float) for stratum in strata]
    fewest = min(map(len, arrays))
    if not fewest:
        return None
    value = float(statistic(*(array[None] for array in arrays))[0])
    if fewest < FEWEST:
        return Estimate(value)
    draw = np.random.default_rng(0).integers
    resampled = statistic(*(array[draw(len(array), size=(RESAMPLES, len(array)))] for array in arrays))
    low, high = np.percentile(resampled, PERCENTILES, method="nearest")  # interpolating fails at infinity
    return Estimate(value, float(low), float(high))


def median(values: np.ndarray) -> np.ndarray:
    """The median of each resample."""
    return np.asarray(np.median(values, axis=1))


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """The mean without the lowest and the highest quarter, of each resample; of fewer than four values their mean."""
    cut = values.shape[1] // 4
    return np.asarray(np.sort(values, axis=1)[:, cut : values.shape[1] - cut].mean(axis=1))


def probability_of_improvement(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The share of pairs in which the one of ``values`` is higher than the other (ties count half): Mann and Whitney's
    U over the number of pairs."""
    difference = values[:, :, None] - others[:, None, :]
    return np.asarray(((difference > 0) + 0.5 * (difference == 0)).mean(axis=(1, 2)))


def median_time(runs: np.ndarray) -> np.ndarray:
    """Kaplan and Meier's median of times to solve; infinite where fewer than half would have solved.

    Where just half have, it lies in the middle between this time and the next, if there is one, as for the median of an
    even number of values.

    Args:
        runs: ``(resamples, runs, 2)``, the seconds of each run and whether it solved then (1) or was ended (0), after
            which nobody knows when it would have.
    """
    order = np.lexsort((-runs[..., 1], runs[..., 0]), axis=1)  # one that is ended as another solves was at risk
    times, solved = (np.take_along_axis(runs[..., column], order, axis=1) for column in (0, 1))
    at_risk = np.arange(runs.shape[1], 0, -1)
    unsolved = np.cumprod(1 - solved / at_risk, axis=1)
    first, below = (
        np.where(reached, times, math.inf).min(axis=1) for reached in (unsolved < HALF[0], unsolved < HALF[1])
    )
    return np.asarray(np.where(np.isfinite(below), (first + below) / 2, first))
