"""Statistics over seeds: means and medians with bootstrap intervals, also of times that are known only as lower bounds.

Intervals span the 2.5th to the 97.5th percentile of a stratified bootstrap, as in Agarwal et al., "Deep Reinforcement
Learning at the Edge of the Statistical Precipice" (2021), section 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

NUM_RESAMPLES = 2000
MIN_RUNS_FOR_INTERVAL = 5  # in each stratum; a bootstrap over fewer runs is too narrow
PERCENTILES = 2.5, 97.5
ROUNDING = 1e-9  # of products of shares
# Takes one array a stratum, (resamples, runs) or (resamples, runs, 2), and returns one value a resample.
Statistic = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Estimate:
    """A value and its interval.

    Attributes:
        value: infinite if it is longer than the runs were trained.
        low, high: ``None`` if a stratum has fewer than :data:`MIN_RUNS_FOR_INTERVAL` runs.
    """

    value: float
    low: float | None = None
    high: float | None = None


def estimate(statistic: Statistic, *strata: Sequence[float] | Sequence[tuple[float, bool]]) -> Estimate | None:
    """Compute ``statistic`` of the ``strata`` with its interval; ``None`` if a stratum is empty.

    Equal arguments give equal intervals, and each stratum is resampled separately.
    """
    arrays = [np.asarray(stratum, float) for stratum in strata]
    fewest = min(map(len, arrays))
    if not fewest:
        return None
    value = float(statistic(*(array[None] for array in arrays))[0])
    if fewest < MIN_RUNS_FOR_INTERVAL:
        return Estimate(value)
    draw = np.random.default_rng(0).integers
    resampled = statistic(*(array[draw(len(array), size=(NUM_RESAMPLES, len(array)))] for array in arrays))
    low, high = np.percentile(resampled, PERCENTILES, method="nearest")  # interpolation fails at infinity
    return Estimate(value, float(low), float(high))


def median(values: np.ndarray) -> np.ndarray:
    """Median of each row of ``values`` ``(resamples, runs)``."""
    return np.asarray(np.median(values, axis=1))


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Mean of each row of ``values`` ``(resamples, runs)`` without its lowest and highest quarter.

    Fewer than four runs are all averaged.
    """
    cut = values.shape[1] // 4
    return np.asarray(np.sort(values, axis=1)[:, cut : values.shape[1] - cut].mean(axis=1))


def mean_over_games(*games: np.ndarray) -> np.ndarray:
    """Mean over ``games`` of the mean of each game's runs ``(resamples, runs)``."""
    return np.asarray(_means(games).mean(axis=1))


def median_over_games(*games: np.ndarray) -> np.ndarray:
    """Median over ``games`` of the mean of each game's runs ``(resamples, runs)``."""
    return median(_means(games))


def interquartile_mean_over_games(*games: np.ndarray) -> np.ndarray:
    """Interquartile mean of all runs of all ``games``."""
    return interquartile_mean(np.concatenate(games, axis=1))


def optimality_gap(*games: np.ndarray) -> np.ndarray:
    """Mean distance of scores below 1; a score above 1 has none."""
    return mean_over_games(*(np.maximum(1 - game, 0) for game in games))


def share_above(threshold: float, *games: np.ndarray) -> np.ndarray:
    """Share of runs with a score above ``threshold``, where each game counts alike."""
    return mean_over_games(*(game > threshold for game in games))


def _means(games: Sequence[np.ndarray]) -> np.ndarray:
    """The mean of each resample of each game, ``(resamples, games)``."""
    return np.stack([game.mean(axis=1) for game in games], axis=1)


def probability_of_improvement(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Share of pairs in which ``values`` has the higher number; ties count half.

    This is the U of Mann and Whitney, divided by the number of pairs.
    """
    difference = values[:, :, None] - others[:, None, :]
    return np.asarray(((difference > 0) + 0.5 * (difference == 0)).mean(axis=(1, 2)))


def median_time(runs: np.ndarray) -> np.ndarray:
    """Median of the Kaplan-Meier estimate of times to solve; infinite if fewer than half of the runs solve the game.

    If exactly half solve it, the median is the middle between this time and the next, if there is a next.

    Args:
        runs: ``(resamples, runs, 2)``, the seconds of each run, and 1 if it solved the game then or 0 if it was
            ended (censored) then.
    """
    order = np.lexsort((-runs[..., 1], runs[..., 0]), axis=1)  # at equal times, ended runs were still at risk
    times, solved = (np.take_along_axis(runs[..., column], order, axis=1) for column in (0, 1))
    at_risk = np.arange(runs.shape[1], 0, -1)
    unsolved = np.cumprod(1 - solved / at_risk, axis=1)
    first, below = (
        np.where(unsolved < limit, times, math.inf).min(axis=1) for limit in (0.5 + ROUNDING, 0.5 - ROUNDING)
    )
    return np.asarray(np.where(np.isfinite(below), (first + below) / 2, first))
