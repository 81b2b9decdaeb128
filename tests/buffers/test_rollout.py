"""Returns against their definitions, and rollouts against naive references that keep whole episodes in lists."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from event_streams import GAMMA, Event, append, as_arrays_or_tensors, event_streams, storage_of
from hypothesis import given, settings
from hypothesis import strategies as st

from dqnspeed.buffers import DeviceStorage, HostStorage, RolloutBatch, RolloutBuffer, Rows, ring_layout
from dqnspeed.buffers.returns import lambda_returns, vtrace
from dqnspeed.execution.arrays import Arrays, host

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


every_device = pytest.mark.parametrize("device", [None, "cpu", pytest.param("cuda", marks=pytest.mark.cuda)])


def on(device: str | None, compute: Callable[..., Any], *arrays: np.ndarray) -> Any:
    """Results of ``compute`` on a device, as NumPy arrays."""
    there = Arrays(device and torch.device(device))  # type: ignore[arg-type]
    found = compute(there, *map(there.own, arrays), GAMMA, LAM)
    return [host(array) for array in found] if isinstance(found, tuple) else host(found)


@every_device
@settings(max_examples=40, deadline=None)
@given(event_streams(), st.integers(0, 2**31))
def test_lambda_returns_equal_the_forward_view(device: str | None, streams: list[list[Event]], seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(len(streams), len(streams[0]))).astype(np.float32)
    steps = len(streams[0]) - 1
    rewards, *ends = columns(streams, steps)
    got = on(device, lambda_returns, rewards, values, *ends)
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


@every_device
@settings(max_examples=40, deadline=None)
@given(event_streams(), st.integers(0, 2**31))
def test_vtrace_equals_its_definition(device: str | None, streams: list[list[Event]], seed: int) -> None:
    rng, steps = np.random.default_rng(seed), len(streams[0]) - 1
    values = rng.normal(size=(len(streams), steps + 1)).astype(np.float32)
    log_ratios = rng.normal(size=(len(streams), steps)).astype(np.float32)
    rewards, *ends = columns(streams, steps)
    targets, advantages = on(device, vtrace, rewards, values, *ends, log_ratios)
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
    on_policy, _ = on(device, vtrace, rewards, values, *ends, 0 * log_ratios)
    np.testing.assert_allclose(on_policy, on(device, lambda_returns, rewards, values, *ends), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("corrected", [False, True])
def test_values_of_an_episodes_last_frame_do_not_reach_the_steps_before_it(corrected: bool) -> None:
    """A network may give NaN for it."""

    def column(*of: float) -> np.ndarray:
        return np.array([of], np.float32)

    rewards, values = column(1, 2, 0, 3), column(0.5, 0.25, math.nan, 0.125, math.nan)
    ends = column(0, 1, 0, 1).astype(bool), column(0, 0, 0, 0).astype(bool)
    found = on(None, lambda_returns, rewards, values, *ends)
    if corrected:
        log_ratios = column(0, 0, math.nan, 0)
        found, advantages = on(None, vtrace, rewards, values, *ends, log_ratios)
        assert np.isfinite(advantages[0, [0, 1, 3]]).all()
    expected = 1 + GAMMA * ((1 - LAM) * 0.25 + LAM * 2)
    np.testing.assert_allclose(found[0, [0, 1, 3]], [expected, 2, 3], rtol=1e-6)


@as_arrays_or_tensors
@settings(max_examples=40, deadline=None)
@given(event_streams(), st.integers(2, 9), st.integers(1, 3), st.integers(1, 3), st.integers(1, 20), st.booleans())
def test_every_epoch_of_a_rollout_gives_each_of_its_transitions_once(
    tensors: str | None, streams: list[list[Event]], steps: int, epochs: int, stack: int, batch_size: int, asked: bool
) -> None:
    """Bootstrapped from the next row, or from values that are ``asked`` for before there is one."""
    # With room for a few frames alone where these come as tensors, which are stored elsewhere.
    device, num_frames = (torch.device(tensors), 3) if tensors else (None, None)
    storage = storage_of(len(streams), steps + stack + 3, stack, device=device, acting=True, num_frames=num_frames)
    rollouts = RolloutBuffer(storage, steps, epochs, GAMMA, LAM)
    batch_size, begin = min(batch_size, len(streams) * steps), 0
    if asked:
        rollouts.bootstrap = lambda: storage.cursors().astype(np.float32)
    for row, events in enumerate(zip(*streams, strict=True)):
        values, log_probs = np.full(len(streams), row), -np.array([e.number for e in events])
        append(rollouts, events, tensors=tensors, values=values, log_probs=log_probs)
        due = rollouts.due(batch_size)
        end = begin + steps
        complete = row == (end - 1 if asked else end)
        inside = (
            [(env, r) for env in range(len(streams)) for r in range(begin, end) if streams[env][r].transition]
            if complete
            else []
        )
        assert due == epochs * -(-len(inside) // batch_size)
        if not due:
            begin = end if complete else begin
            continue
        batches, sizes = list[RolloutBatch](), list[int]()
        for _ in range(due):
            batches.append(rollouts.sample(batch_size))
            sizes.append(rollouts.samples_in_batch(batch_size))
        numbers = {streams[env][r].number: (env, r) for env, r in inside}
        for batch, size in zip(batches, sizes, strict=True):
            assert len(batch.actions) == batch_size
            count = int((batch.weights > 0).sum())
            assert count == size
            assert batch.weights[:count].numpy() == pytest.approx(1 / count) and not batch.weights[count:].any()
            for i, number in enumerate(batch.observations[:, -1, 0].tolist()):
                env, r = numbers[number]
                assert batch.log_probs[i] == -number and batch.values[i] == r
                expected = forward_view(streams[env], range(len(streams[env]) + 1), r, end)
                assert batch.returns[i] == pytest.approx(expected, rel=1e-4, abs=1e-3)
        per_epoch = due // epochs
        for epoch in range(epochs):
            drawn = [b.log_probs[b.weights > 0].tolist() for b in batches[epoch * per_epoch : (epoch + 1) * per_epoch]]
            assert sorted(at for batch in drawn for at in batch) == sorted(-number for number in numbers)
            assert max(map(len, drawn)) - min(map(len, drawn)) <= 1
        first = batches[:per_epoch]
        returns, values = (
            torch.cat([getattr(b, name)[b.weights > 0] for b in first]).double().numpy()
            for name in ("returns", "values")
        )
        if returns.std() > 0.01 * abs(returns).max():
            expected = 1 - np.var(returns - values) / np.var(returns)
            assert rollouts.explained_variance == pytest.approx(expected, rel=1e-3, abs=1e-3)
        elif len(inside) == 1:
            assert math.isnan(rollouts.explained_variance)
        begin = end
        assert not rollouts.due(batch_size)


@as_arrays_or_tensors
def test_actions_are_evaluated_with_the_stack_and_the_action_of_every_row(tensors: str | None) -> None:
    """In environments whose games end at different rows, round the ring."""
    num_envs, steps = 3, 5
    layout = ring_layout(num_envs, 4 * steps + 9, (1,), np.dtype(np.float32), acting=True)
    storage = DeviceStorage(HostStorage(layout), 2, device=tensors and torch.device(tensors))
    rollouts = RolloutBuffer(storage, steps, 1, GAMMA, LAM)
    shown = list[tuple[list[float], list[int]]]()

    def evaluate_actions(observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        shown.append((observations[:, 1].tolist(), actions.tolist()))
        return torch.stack([observations[:, 1], actions.float()])

    rollouts.evaluate_actions = evaluate_actions
    env, learnt = np.arange(num_envs), 0
    for step in range(80):
        first, last = (step % 7 == env) | (step == 0), (step % 7 == (env - 1) % 7) & (step > 0)
        terminated = (step % 7 == (env - 2) % 7) & (step > 1)
        frames, ones = (1000 * env + step)[:, None].astype(np.float32), np.ones(num_envs, np.float32)
        rollouts.storage.append(Rows(frames, (env + step) % 4, ones, terminated, ~ones.astype(bool), first, ~last))
        if due := rollouts.due(3):
            rows = steps * learnt + np.arange(steps + 1)
            for _ in range(due):
                batch = rollouts.sample(3)
                assert torch.equal(batch.values, batch.observations[:, 1])
            learnt += 1
            expected = [((1000 * i + rows).tolist(), ((i + rows) % 4).tolist()) for i in env]
            assert shown == expected
            shown.clear()
    assert learnt == 15
