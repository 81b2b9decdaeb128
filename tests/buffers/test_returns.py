"""Returns of rollouts against their definitions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from event_streams import GAMMA, Event, event_streams
from hypothesis import given
from hypothesis import strategies as st

from dqnspeed.buffers.returns import lambda_returns, vtrace
from dqnspeed.execution.arrays import Arrays

LAM = 0.8


def forward_view(events: Sequence[Event], values: Sequence[float], start: int, end: int) -> float:
    """The λ-return of row ``start`` from its definition (Sutton and Barto, 12.3): a mean over n-step returns."""
    n_step, total, k = [], 0.0, 0
    for row in range(start, end):
        total += GAMMA**k * events[row].reward
        k += 1
        n_step.append(total + (0 if events[row].terminated else GAMMA**k * values[row + 1]))
        if events[row].terminated or events[row].truncated:
            break
    weights = [(1 - LAM) * LAM**n for n in range(k - 1)] + [LAM ** (k - 1)]
    return sum(w * g for w, g in zip(weights, n_step, strict=True))


def columns(streams: list[list[Event]], steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rewards, terminated and truncated, ``(N, steps)``."""
    events = [[(e.reward, e.terminated, e.truncated) for e in stream[:steps]] for stream in streams]
    rewards, terminated, truncated = np.moveaxis(np.array(events), 2, 0)
    return rewards.astype(np.float32), terminated.astype(bool), truncated.astype(bool)


@given(event_streams(), st.integers(0, 2**31))
def test_lambda_returns_equal_the_forward_view(streams: list[list[Event]], seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(len(streams), len(streams[0]))).astype(np.float32)
    steps = len(streams[0]) - 1
    rewards, *ends = columns(streams, steps)
    got = lambda_returns(Arrays(None), rewards, values, *ends, GAMMA, LAM)
    for env, stream in enumerate(streams):
        for row in range(steps):
            if stream[row].transition:
                expected = forward_view(stream, list(values[env]), row, steps)
                assert got[env, row] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def by_definition(
    events: Sequence[Event], values: Sequence[float], ratios: Sequence[float], start: int, end: int
) -> float:
    """The target of V-trace from its definition (Espeholt et al. 2018, equation 1)."""
    total, product = values[start], 1.0
    for t in range(start, end):
        following = 0 if events[t].terminated else GAMMA * values[t + 1]
        delta = min(1.0, ratios[t]) * (events[t].reward + following - values[t])
        total += GAMMA ** (t - start) * product * delta
        product *= LAM * min(1.0, ratios[t])
        if events[t].terminated or events[t].truncated:
            break
    return total


@given(event_streams(), st.integers(0, 2**31))
def test_vtrace_equals_its_definition(streams: list[list[Event]], seed: int) -> None:
    rng, steps = np.random.default_rng(seed), len(streams[0]) - 1
    values = rng.normal(size=(len(streams), steps + 1)).astype(np.float32)
    log_ratios = rng.normal(size=(len(streams), steps)).astype(np.float32)
    rewards, *ends = columns(streams, steps)
    targets, advantages = vtrace(Arrays(None), rewards, values, *ends, log_ratios, GAMMA, LAM)
    ratios = np.exp(log_ratios)
    for env, stream in enumerate(streams):
        for row in range(steps):
            if not stream[row].transition:
                continue
            expected = by_definition(stream, list(values[env]), list(ratios[env]), row, steps)
            assert targets[env, row] == pytest.approx(expected, rel=1e-4, abs=1e-4)
            ended = stream[row].terminated or stream[row].truncated or row + 1 == steps
            nothing = 0 if stream[row].terminated else values[env, row + 1]
            following = nothing if ended else targets[env, row + 1]
            expected = stream[row].reward + GAMMA * following - values[env, row]
            assert advantages[env, row] == pytest.approx(expected, rel=1e-4, abs=1e-4)
    on_policy, _ = vtrace(Arrays(None), rewards, values, *ends, 0 * log_ratios, GAMMA, LAM)
    np.testing.assert_allclose(
        on_policy, lambda_returns(Arrays(None), rewards, values, *ends, GAMMA, LAM), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("corrected", [False, True])
def test_values_of_an_episodes_last_frame_do_not_reach_the_steps_before_it(corrected: bool) -> None:
    """A network may give NaN for it."""

    def column(*of: float) -> np.ndarray:
        return np.array([of], np.float32)

    rewards, values = column(1, 2, 0, 3), column(0.5, 0.25, math.nan, 0.125, math.nan)
    ends = column(0, 1, 0, 1).astype(bool), column(0, 0, 0, 0).astype(bool)
    found = lambda_returns(Arrays(None), rewards, values, *ends, GAMMA, LAM)
    if corrected:
        log_ratios = column(0, 0, math.nan, 0)
        found, advantages = vtrace(Arrays(None), rewards, values, *ends, log_ratios, GAMMA, LAM)
        assert np.isfinite(advantages[0, [0, 1, 3]]).all()
    expected = 1 + GAMMA * ((1 - LAM) * 0.25 + LAM * 2)
    np.testing.assert_allclose(found[0, [0, 1, 3]], [expected, 2, 3], rtol=1e-6)
