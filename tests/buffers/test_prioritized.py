"""Prioritized replay against the equations of Schaul et al. (2016) and a naive reference of what may be drawn."""

from __future__ import annotations

import multiprocessing
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_uniform import GAMMA, Event, append, as_arrays_or_tensors, lanes, naive

from dqnspeed.buffers import Batch, LocalBuffers, Rings, Rows, SharedBuffers, ring_layout
from dqnspeed.buffers.base import ReplayArguments
from dqnspeed.buffers.prioritized import PrioritizedReplay
from dqnspeed.buffers.sum_tree import SumTree
from dqnspeed.execution.arrays import Arrays

NUMBERS = {"alpha": 0.6, "beta": 0.4, "beta_final": 1.0, "beta_updates": 1, "priority_eps": 1e-6}
PARTS = ("observations", "actions", "rewards", "next_observations", "discounts", "weights")


def make(streams: list[list[Event]], rows: int, stack: int = 1, n_step: int = 1, **options: Any) -> PrioritizedReplay:
    """An empty replay for these streams."""
    layout = ring_layout(len(streams), rows, (2, 3), np.dtype(np.uint8))
    return PrioritizedReplay(ReplayArguments(LocalBuffers(layout), stack, n_step, GAMMA, seed=1), **NUMBERS | options)


def filled(streams: list[list[Event]], *args: int, **options: Any) -> PrioritizedReplay:
    replay = make(streams, *args, **options)
    for events in zip(*streams, strict=True):
        append(replay, events)
    return replay


def steady(count: int) -> list[Event]:
    """One long episode whose frames are numbered from 1."""
    return [Event(i + 1, i % 3, float(i % 5), False, False, i == 0, True) for i in range(count)]


def key(batch: Batch, i: int) -> tuple:
    """What tells transition ``i`` from others, as :func:`naive` has it."""
    before, after = (tuple(o[i, ::2, 0].tolist()) for o in (batch.observations, batch.next_observations))
    return before, int(batch.actions[i]), after, round(float(batch.discounts[i]), 5)


def assert_same(one: Batch, other: Batch) -> None:
    for part in PARTS:
        np.testing.assert_array_equal(getattr(one, part), getattr(other, part), part)


def set_errors(replay: PrioritizedReplay, errors: np.ndarray) -> None:
    """Give the first rows of the first lane these errors."""
    replay.receive()
    given = torch.from_numpy(errors.astype(np.float32))
    replay._reprioritize(np.arange(len(errors)), int(replay._received.sum()), given)


def learn(batch: Batch, errors: np.ndarray) -> None:
    assert batch.reprioritize is not None
    batch.reprioritize(torch.from_numpy(errors.astype(np.float32)))


def held(replay: PrioritizedReplay) -> np.ndarray:
    """The priorities, to the power of alpha, by lane and place."""
    return replay._tree.values.reshape(len(replay._written), -1).copy()


def rows_at(replay: PrioritizedReplay, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lanes and absolute row numbers of what stands at ``index``."""
    lane, at = np.divmod(index, replay._rows)
    begin = replay._begin[lane]
    return lane, begin + (at - begin) % replay._rows


# the tree


every_array = pytest.mark.parametrize("device", [None, torch.device("cpu")], ids=["numpy", "torch"])


@every_array
@settings(max_examples=50, deadline=None)
@given(st.sampled_from([1, 5, 64, 65, 1000, 5000, 140_000, 300_000]), st.integers(0, 2**32 - 1), st.data())
def test_the_sums_are_those_of_the_numbers_to_the_last_bit_however_they_came(
    device: torch.device | None, size: int, seed: int, data: st.DataObject
) -> None:
    rng, arrays = np.random.default_rng(seed), Arrays(device)
    tree, numbers = SumTree(size, arrays), np.zeros(size)
    for count in data.draw(st.lists(st.integers(0, size), max_size=6)):
        index = rng.permutation(size)[:count]
        values = rng.exponential(size=count) * (rng.random(count) < 0.8)
        tree.update(arrays.own(index), arrays.own(values))
        numbers[index] = values
    np.testing.assert_array_equal(tree.values, numbers)
    assert float(tree.total) == pytest.approx(numbers.sum())
    at_once = SumTree(size, arrays)
    at_once.update(arrays.arange(size), arrays.own(numbers.copy()))
    for one, other in zip([*tree._blocks, tree._total], [*at_once._blocks, at_once._total], strict=True):
        np.testing.assert_array_equal(one, other)


@every_array
@pytest.mark.parametrize("size", [1, 7, 64, 65, 4097, 140_000, 300_000])
def test_the_number_found_is_the_first_whose_running_sum_exceeds_the_value(
    size: int, device: torch.device | None
) -> None:
    rng, arrays = np.random.default_rng(size), Arrays(device)
    numbers = rng.integers(0, 4, size).astype(float)  # whole numbers: sums are exact, and so are hits on a border
    numbers[size // 2] = 1.0
    tree = SumTree(size, arrays)
    tree.update(arrays.arange(size), arrays.own(numbers.copy()))
    values = rng.integers(0, int(numbers.sum()), 1000).astype(float)
    expected = np.searchsorted(numbers.cumsum(), values, side="right")
    np.testing.assert_array_equal(tree.find(arrays.own(values)), expected)


# what is drawn


@pytest.mark.slow
@as_arrays_or_tensors
@settings(max_examples=100, deadline=None)
@given(lanes(), st.integers(8, 45), st.integers(1, 4), st.integers(1, 3), st.data())
def test_only_whole_transitions_are_drawn_and_all_of_them(
    tensors: str | None, streams: list[list[Event]], rows: int, stack: int, n_step: int, data: st.DataObject
) -> None:
    replay = make(streams, rows, stack, n_step)
    looks = data.draw(st.sets(st.integers(0, len(streams[0]) - 1)))
    rng = np.random.default_rng(0)
    for i, events in enumerate(zip(*streams, strict=True)):
        append(replay, events, tensors=tensors)
        if i in looks:  # the tree follows in one go, or row by row
            try:
                batch = replay.sample(8)
            except LookupError:
                continue
            learn(batch, rng.exponential(size=8))
    expected: dict[tuple, float] = {}
    for stream in streams:
        expected |= naive(stream, rows, stack, n_step)
    if not expected:
        with pytest.raises(LookupError, match="no complete transition yet"):
            replay.sample(8)
        return
    replay.receive()
    chosen = np.flatnonzero(replay._tree.values)
    everything = replay._gather(*rows_at(replay, chosen))
    assert {key(everything, i) for i in range(len(chosen))} == set(expected)
    batch = replay.sample(200)
    for i in range(200):
        assert batch.rewards[i] == pytest.approx(expected[key(batch, i)], abs=1e-4)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 100), min_size=30, max_size=30), st.floats(0, 1))
def test_each_is_drawn_in_proportion_to_its_priority_to_alpha(errors: list[float], alpha: float) -> None:
    """Stratified: of B draws, a transition gets B P(i), rounded up or down at each border of its share."""
    replay = filled([steady(31)], 40, alpha=alpha, priority_eps=0.01)
    set_errors(replay, np.array(errors))
    chances = (np.array(errors, np.float32).astype(float) + 0.01) ** alpha
    batch = replay.sample(10_000)
    counts = np.bincount(batch.observations[:, 0, 0].numpy() - 1, minlength=30)
    assert np.abs(counts - 10_000 * chances / chances.sum()).max() <= 2


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 100), min_size=30, max_size=30), st.floats(0, 1), st.floats(0, 1))
def test_weights_are_those_of_the_equation(errors: list[float], alpha: float, beta: float) -> None:
    replay = filled([steady(31)], 40, alpha=alpha, beta=beta, beta_final=beta, priority_eps=0.01)
    set_errors(replay, np.array(errors))
    chances = (np.array(errors, np.float32).astype(float) + 0.01) ** alpha
    batch = replay.sample(16)
    weights = (30 * (chances / chances.sum())[batch.observations[:, 0, 0].numpy() - 1]) ** -beta
    assert batch.weights is not None and batch.weights.dtype == torch.float32
    np.testing.assert_allclose(batch.weights, weights / weights.max(), rtol=1e-5)


def test_new_transitions_get_the_largest_priority_there_ever_was() -> None:
    stream = steady(60)
    replay = filled([stream[:11]], 40, alpha=1.0, priority_eps=0.5)
    batch = replay.sample(4)
    np.testing.assert_array_equal(held(replay)[0, :10], 1.0)
    learn(batch, np.array([1.0, 7.0, 2.0, 3.0]))
    learn(replay.sample(1), np.array([0.0]))
    append(replay, [stream[11]])
    replay.sample(1)
    assert held(replay)[0, 10] == 7.5


def test_beta_grows_with_the_batches_from_first_to_last() -> None:
    replay = filled([steady(10)], 40, beta=0.4, beta_final=1.0, beta_updates=3)
    seen = []
    for _ in range(5):
        seen.append(replay.beta[0])
        replay.sample(2)
    np.testing.assert_allclose(seen, [0.4, 0.6, 0.8, 1.0, 1.0])


def test_errors_of_rows_that_were_overwritten_change_nothing() -> None:
    stream = steady(60)
    replay = filled([stream[:20]], 10)
    old = replay.sample(64)
    for event in stream[20:25]:  # 5 of 10 rows
        append(replay, [event])
    replay.sample(1)
    before = held(replay)
    learn(old, np.full(64, 99.0))
    np.testing.assert_array_equal(held(replay), before)
    assert replay._max_priority < 10


def test_an_error_that_is_not_finite_leaves_the_draw_sound() -> None:
    replay = filled([steady(20)], 40)
    learn(replay.sample(4), np.array([np.nan, np.inf, -np.inf, 2.0]))
    assert np.isfinite(float(replay._tree.total)) and len(replay.sample(8).actions) == 8


def test_a_blank_batch_has_the_arrays_of_all_others() -> None:
    replay = filled([steady(20)], 40, 2, 3)
    drawn, blank = replay.sample(8).arrays(), replay.blank(8).arrays()
    assert list(drawn) == list(blank) == list(PARTS)
    for name in PARTS:
        assert (drawn[name].shape, drawn[name].dtype) == (blank[name].shape, blank[name].dtype)


def test_lanes_written_at_different_speeds_stay_apart() -> None:
    replay = make([steady(1)] * 2, 50)
    for i, event in enumerate(steady(30)):
        for lane in (0, 1) if i % 3 == 0 else (0,):
            row = Event(100 * lane + event.number, 0, 0.0, False, False, i == 0, True)
            append_to(replay, row, lane)
    batch = replay.sample(380)
    lane1 = batch.observations[:, 0, 0] > 100
    np.testing.assert_array_equal(lane1, batch.next_observations[:, 0, 0] > 100)
    assert abs(int(lane1.sum()) - 90) <= 1  # 9 of 38


def append_to(replay: PrioritizedReplay, event: Event, lane: int) -> None:
    no = np.zeros(1, bool)
    frames = np.full((1, 2, 3), event.number, np.uint8)
    first, transition = np.array([event.first]), np.array([event.transition])
    replay.append(Rows(frames, np.zeros(1, int), np.zeros(1, np.float32), no, no, first, transition), lane)


# going on


@settings(max_examples=60, deadline=None)
@given(lanes(), st.integers(8, 45), st.integers(1, 3), st.integers(1, 3), st.data())
def test_a_resumed_replay_goes_on_to_the_last_bit(
    streams: list[list[Event]], rows: int, stack: int, n_step: int, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(streams[0])))
    replay, resumed = (make(streams, rows, stack, n_step, beta_updates=9) for _ in range(2))
    rng = np.random.default_rng(3)
    for i, events in enumerate(zip(*streams, strict=True)):
        if i == at:
            resumed.load_state_dict(replay.state_dict())
        append(replay, events)
        if i >= at:
            append(resumed, events)
        errors = rng.exponential(size=5)
        try:
            batch = replay.sample(5)
        except LookupError:
            if i >= at:
                with pytest.raises(LookupError):
                    resumed.sample(5)
            continue
        if i >= at:
            same = resumed.sample(5)
            assert_same(batch, same)
            learn(same, errors)
        learn(batch, errors)
    if at < len(streams[0]):
        np.testing.assert_array_equal(held(replay), held(resumed))
        assert replay._tree.total == resumed._tree.total and replay.beta == resumed.beta


@settings(max_examples=60, deadline=None)
@given(lanes(), st.integers(8, 45), st.integers(8, 45), st.integers(1, 3), st.integers(1, 3), st.data())
def test_rings_of_another_length_take_over_the_priorities_of_the_rows_they_hold(
    streams: list[list[Event]], before: int, after: int, stack: int, n_step: int, data: st.DataObject
) -> None:
    at = data.draw(st.integers(1, len(streams[0])))
    replay, resumed = make(streams, before, stack, n_step), make(streams, after, stack, n_step)
    rng = np.random.default_rng(3)
    for events in zip(*(stream[:at] for stream in streams), strict=True):
        append(replay, events)
        try:
            learn(replay.sample(5), rng.exponential(size=5))
        except LookupError:
            continue
    replay.receive()
    resumed.load_state_dict(replay.state_dict())
    resumed.receive()
    had, has = priorities(replay), priorities(resumed)
    assert has == {row: had[row] for row in had if row[1] >= resumed._begin[row[0]]}
    for events in zip(*(stream[at:] for stream in streams), strict=True):
        append(resumed, events)
    expected: dict[tuple, float] = {}
    for stream in streams:
        expected |= naive(stream, after, stack, n_step)
    resumed.receive()
    rows = np.flatnonzero(resumed._tree.values)
    batch = resumed._gather(*rows_at(resumed, rows))
    assert {key(batch, i) for i in range(len(rows))} <= set(expected)


def priorities(replay: PrioritizedReplay) -> dict[tuple[int, int], float]:
    """The priority of each row, by lane and number."""
    index = np.flatnonzero(replay._tree.values)
    lane, row = rows_at(replay, index)
    return dict(zip(zip(lane.tolist(), row.tolist(), strict=True), replay._tree.values[index].tolist(), strict=True))


def test_without_a_stored_replay_it_begins_with_what_comes() -> None:
    """A resumed game may begin in its middle: the first row's stack repeats its frame."""
    stream = steady(40)[20:]
    replay = filled([stream], 30, 3, 1)
    observations = replay.sample(100).observations.numpy()
    assert set(observations[:, -1, 0].tolist()) == set(range(21, 40))
    np.testing.assert_array_equal(observations[observations[:, -1, 0] == 21][:, ::2, 0], 21)


# where others write


def write(buffers: SharedBuffers | LocalBuffers, lane: int, seconds: float, allowed: Any) -> None:
    """Append to ``lane`` for a while; the frame of row i holds i and the lane, the action and the reward follow."""
    writer = Rings(buffers)
    deadline, i = time.monotonic() + seconds, 0
    no = np.zeros(1, bool)
    while time.monotonic() < deadline:
        while i < allowed[lane]:
            frame = np.array([[lane, i]], np.int64)
            opens, last = np.array([i % 10 == 0]), i % 10 == 9
            truncated, transition = np.array([i % 10 == 8]), np.array([not last])
            rows = Rows(frame, np.array([i % 7]), np.array([i % 11], np.float32), no, truncated, opens, transition)
            writer.append(rows, lane)
            i += 1


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "writers"), [("thread", 2), ("process", 1)])
def test_what_is_drawn_is_whole_while_others_write(kind: str, writers: int) -> None:
    layout = ring_layout(writers, 100, (2,), np.dtype(np.int64), frames=30)
    context = multiprocessing.get_context("spawn")
    buffers = SharedBuffers(layout, writers)
    replay = PrioritizedReplay(ReplayArguments(buffers, 3, 2, GAMMA), **NUMBERS)
    allowed = context.RawArray("d", writers)
    make_worker: Any = context.Process if kind == "process" else threading.Thread
    workers = [make_worker(target=write, args=(buffers, lane, 1.0, allowed)) for lane in range(writers)]
    for worker in workers:
        worker.start()
    drawn, rng = 0, np.random.default_rng(0)
    while any(worker.is_alive() for worker in workers) or not drawn:
        allowed[:] = replay.rows_allowed().tolist()
        try:
            batch = replay.sample(32)
        except LookupError:
            continue
        drawn += 1
        batch.observations, batch.next_observations = batch.observations.numpy(), batch.next_observations.numpy()  # type: ignore[assignment]
        lane, number = batch.observations[:, -2], batch.observations[:, -1]
        assert (number % 10 != 9).all()  # final frames lead nowhere
        np.testing.assert_array_equal(batch.actions, number % 7)
        stack = np.stack([np.maximum(number - k, number // 10 * 10) for k in (2, 1, 0)], axis=1)
        np.testing.assert_array_equal(batch.observations[:, 1::2], stack)
        np.testing.assert_array_equal(batch.next_observations[:, -1], number + np.where(number % 10 == 8, 1, 2))
        np.testing.assert_array_equal(batch.next_observations[:, -2], lane)
        learn(batch, rng.exponential(size=32))
    for worker in workers:
        worker.join()
    assert drawn > 1
    np.testing.assert_allclose(float(replay._tree.total), held(replay).sum())
    del worker, workers
    replay.close()
