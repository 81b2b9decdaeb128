"""Prioritized replay against the equations of Schaul et al. (2016) and a naive reference of drawable transitions."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from event_streams import append, fill, learn, one_episode, priorities, prioritized, storage_of
from forked import FORKED
from hypothesis import given, settings
from hypothesis import strategies as st

from dqnspeed.buffers import DeviceStorage, ReplayBuffer, RingBuffer, Rows, SharedStorage, ring_layout


def make(num_envs: int, num_rows: int, stack: int = 1, n_step: int = 1, **options: Any) -> ReplayBuffer:
    return prioritized(storage_of(num_envs, num_rows, stack, n_step), **options)


def set_errors(replay: ReplayBuffer, errors: np.ndarray) -> None:
    """Give the first rows of the first environment these errors."""
    replay.storage.receive()
    given = torch.from_numpy(errors.astype(np.float32))
    replay.sampler.update_priorities(np.arange(len(errors)), given)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 100), min_size=30, max_size=30), st.floats(0, 1), st.floats(0, 1))
def test_draws_and_weights_follow_the_equations(errors: list[float], alpha: float, beta: float) -> None:
    """Stratified: of B draws, a transition gets B P(i), rounded up or down at each border of its share."""
    replay = fill(make(1, 40, alpha=alpha, beta=beta, beta_final=beta, priority_eps=0.01), [one_episode(31)])
    set_errors(replay, np.array(errors))
    chances = (np.array(errors, np.float32).astype(float) + 0.01) ** alpha
    batch = replay.sample(10_000)
    drawn = batch.observations[:, 0, 0].numpy() - 1
    assert np.abs(np.bincount(drawn, minlength=30) - 10_000 * chances / chances.sum()).max() <= 2
    weights = (30 * (chances / chances.sum())[drawn]) ** -beta
    assert batch.weights is not None and batch.weights.dtype == torch.float32
    np.testing.assert_allclose(batch.weights, weights / weights.max(), rtol=1e-5)


def test_new_transitions_get_the_largest_priority_there_ever_was() -> None:
    stream = one_episode(60)
    replay = fill(make(1, 40, alpha=1.0, priority_eps=0.5), [stream[:11]])
    batch = replay.sample(4)
    np.testing.assert_array_equal(priorities(replay)[0, :10], 1.0)
    learn(batch, np.array([1.0, 7.0, 2.0, 3.0]))
    learn(replay.sample(1), np.array([0.0]))
    append(replay, [stream[11]])
    assert priorities(replay)[0, 10] == 7.5


def test_beta_grows_with_the_batches_from_first_to_last() -> None:
    replay = fill(make(1, 40, beta=0.4, beta_final=1.0, beta_updates=3), [one_episode(10)])
    seen = []
    for _ in range(5):
        seen.append(replay.sampler.beta[0])  # type: ignore[attr-defined]
        replay.sample(2)
    np.testing.assert_allclose(seen, [0.4, 0.6, 0.8, 1.0, 1.0])
    resumed = make(1, 40, beta=0.4, beta_final=1.0, beta_updates=3)
    resumed.resume_empty(2)
    np.testing.assert_allclose(resumed.sampler.beta, [0.8])  # type: ignore[attr-defined]


def test_errors_of_rows_that_were_overwritten_change_nothing() -> None:
    stream = one_episode(60)
    replay = fill(make(1, 10), [stream[:20]])
    old = replay.sample(64)
    for event in stream[20:25]:  # 5 of 10 rows
        append(replay, [event])
    before = priorities(replay)
    learn(old, np.full(64, 99.0))
    np.testing.assert_array_equal(priorities(replay), before)
    append(replay, [stream[25]])
    assert priorities(replay).max() == before.max()  # nor the priorities of new transitions


def test_an_error_that_is_not_finite_leaves_the_draw_sound() -> None:
    replay = fill(make(1, 40), [one_episode(20)])
    learn(replay.sample(4), np.array([np.nan, np.inf, -np.inf, 2.0]))
    assert np.isfinite(priorities(replay)).all() and len(replay.sample(8).actions) == 8


def test_without_a_stored_replay_it_begins_with_new_rows() -> None:
    """A resumed game may begin in its middle: the first row's stack repeats its frame."""
    replay = fill(make(1, 30, 3), [one_episode(40)[20:]])
    observations = replay.sample(100).observations.numpy()
    assert set(observations[:, -1, 0].tolist()) == set(range(21, 40))
    np.testing.assert_array_equal(observations[observations[:, -1, 0] == 21][:, ::2, 0], 21)


def write(host: SharedStorage, env_index: int, seconds: float, allowed: Any) -> None:
    """Append for a while; the frame of row i holds i and the environment, from which action and reward follow."""
    writer = RingBuffer(host)
    deadline, i = time.monotonic() + seconds, 0
    no = np.zeros(1, bool)
    while time.monotonic() < deadline:
        while i < allowed[env_index]:
            frame = np.array([[env_index, i]], np.int64)
            opens, last = np.array([i % 10 == 0]), i % 10 == 9
            truncated, transition = np.array([i % 10 == 8]), np.array([not last])
            rows = Rows(frame, np.array([i % 7]), np.array([i % 11], np.float32), no, truncated, opens, transition)
            writer.append(rows, env_index)
            i += 1


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "writers"), [("thread", 2), ("process", 1)])
def test_drawn_transitions_are_whole_while_others_write(kind: str, writers: int) -> None:
    host = SharedStorage(ring_layout(writers, 100, (2,), np.dtype(np.int64), num_frames=30), writers)
    replay = prioritized(DeviceStorage(host, 3, 2, copies=True))
    allowed = FORKED.RawArray("d", writers)
    make_worker: Any = FORKED.Process if kind == "process" else threading.Thread
    workers = [make_worker(target=write, args=(host, env_index, 1.0, allowed)) for env_index in range(writers)]
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
        observations, following = batch.observations.numpy(), batch.next_observations.numpy()
        env, number = observations[:, -2], observations[:, -1]
        assert (number % 10 != 9).all()  # final frames lead nowhere
        np.testing.assert_array_equal(batch.actions, number % 7)
        stack = np.stack([np.maximum(number - k, number // 10 * 10) for k in (2, 1, 0)], axis=1)
        np.testing.assert_array_equal(observations[:, 1::2], stack)
        np.testing.assert_array_equal(following[:, -1], number + np.where(number % 10 == 8, 1, 2))
        np.testing.assert_array_equal(following[:, -2], env)
        learn(batch, rng.exponential(size=32))
    for worker in workers:
        worker.join()
    assert drawn > 1 and np.isfinite(priorities(replay)).all()
    del worker, workers
    replay.close()
