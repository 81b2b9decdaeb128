"""Statistics over seeds, compared with SciPy where SciPy has them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dqnspeed.report.statistics import (
    Estimate,
    Statistic,
    estimate,
    interquartile_mean,
    interquartile_mean_over_games,
    mean_over_games,
    median_over_games,
    median_time,
    probability_of_improvement,
)


@pytest.fixture(scope="module")
def stats() -> Any:
    from scipy import stats  # here, since every worker imports this file

    return stats


@pytest.mark.parametrize("runs", range(1, 10))
def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end(runs: int, stats: Any) -> None:
    values = np.random.default_rng(runs).normal(size=(4, runs))
    assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values, 0.25, axis=1))


def test_the_probability_of_improvement_is_that_of_mann_and_whitney(stats: Any) -> None:
    draw = np.random.default_rng(0).integers
    one, other = draw(5, size=(3, 6)).astype(float), draw(5, size=(3, 4)).astype(float)  # with ties
    expected = [stats.mannwhitneyu(a, b).statistic / 24 for a, b in zip(one, other, strict=True)]
    assert probability_of_improvement(one, other) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(8))
def test_the_median_time_is_that_of_kaplan_and_meier(seed: int, stats: Any) -> None:
    draw = np.random.default_rng(seed)
    times, solved = draw.integers(1, 9, size=7).astype(float), draw.random(7) < 0.7
    survival = stats.ecdf(stats.CensoredData(uncensored=times[solved], right=times[~solved])).sf
    half, below = (survival.quantiles[survival.probabilities < limit] for limit in (0.5 + 1e-9, 0.5 - 1e-9))
    expected = (half[0] + below[0]) / 2 if len(below) else half[0] if len(half) else math.inf
    assert median_time(np.stack([times, solved], axis=1)[None]) == [expected]


def test_runs_that_were_ended_unsolved_make_the_median_time_longer() -> None:
    solved = [(100.0, True), (200.0, True), (300.0, True)]
    found = estimate(median_time, solved)
    assert found == Estimate(200)
    later = estimate(median_time, [*solved, (250.0, False), (400.0, False)])
    assert later is not None and later.value == 300 and later.high == math.inf
    never = estimate(median_time, [(100.0, False)] * 5)
    assert never == Estimate(math.inf, math.inf, math.inf)


def test_an_interval_is_the_same_at_every_call_and_needs_five_runs_of_each_stratum() -> None:
    values = [1.0, 2.0, 4.0, 8.0, 16.0]
    found = estimate(interquartile_mean, values)
    assert found is not None and found == estimate(interquartile_mean, values)
    assert found.low is not None and found.high is not None and 1 <= found.low < found.value < found.high <= 16
    assert estimate(interquartile_mean, values[:4]) == Estimate(3.0)
    assert estimate(probability_of_improvement, values, [0.0] * 4) == Estimate(1.0)
    assert estimate(probability_of_improvement, values, [0.0] * 5) == Estimate(1.0, 1.0, 1.0)
    assert estimate(probability_of_improvement, values, []) is None


@pytest.mark.parametrize("statistic", [mean_over_games, interquartile_mean_over_games, median_over_games])
def test_the_runs_of_each_game_are_drawn_apart(statistic: Statistic) -> None:
    """Runs that differ only between games leave no doubt."""
    assert estimate(statistic, [0.0] * 5, [1.0] * 5) == Estimate(0.5, 0.5, 0.5)
