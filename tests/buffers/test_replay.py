"""Replay buffers with each sampler and storage, against naive references."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from event_streams import (
    Event,
    append,
    assert_equal,
    event_streams,
    fill,
    keys,
    learn,
    naive_of_all,
    one_episode,
    priorities,
    prioritized,
    short_episodes,
    storage_of,
    uniform,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from dqnspeed.buffers import DeviceStorage, HostStorage, ReplayBuffer, SharedStorage
from dqnspeed.execution.arrays import host

# The storage of rows: arrays that are written, or copies that are filled through arrays which are shorter, or as long
# but written by others.
WAYS = {
    "view": (HostStorage, None, None),
    "staged": (HostStorage, 3, None),
    "shared": (SharedStorage, 3, None),
    "shared, whole": (SharedStorage, None, None),
    "tensors": (HostStorage, None, "cpu"),  # the code of a GPU, on a CPU
    "tensors, staged": (HostStorage, 3, "cpu"),
    "tensors, shared": (SharedStorage, 3, "cpu"),
    "cuda": (HostStorage, 3, "cuda"),
}
every_way = pytest.mark.parametrize(
    "way", [pytest.param(way, id=name, marks=[pytest.mark.cuda] * (way[2] == "cuda")) for name, way in WAYS.items()]
)
# The form of rows; tensors are on the device of the storage.
FORMS = {"arrays": (False,), "in turns": (False, True, True)}
every_form = pytest.mark.parametrize("form", FORMS)


every_sampler = pytest.mark.parametrize("sampler", [uniform, prioritized])


def make(
    way: Any, num_envs: int, num_rows: int, stack: int, n_step: int, sampler: Callable[..., ReplayBuffer] = uniform
) -> ReplayBuffer:
    kind, num_frames, device = way
    where = device and torch.device(device)
    return sampler(storage_of(num_envs, num_rows, stack, n_step, kind, where, num_frames=num_frames))


def form_of(way: Any, form: str, step: int) -> str | None:
    """Device of the tensors of a step's rows, or ``None``."""
    return (way[2] or "cpu") if FORMS[form][step % len(FORMS[form])] else None


@pytest.mark.slow
@every_sampler
@every_form
@every_way
@settings(max_examples=25, deadline=None)
@given(event_streams(), st.integers(8, 45), st.integers(1, 4), st.integers(1, 5), st.data())
def test_samples_are_exactly_the_transitions_of_the_reference(
    way: Any, form: str, sampler: Callable[..., ReplayBuffer], streams: list[list[Event]], num_rows: int, stack: int,
    n_step: int, data: st.DataObject,
) -> None:  # fmt: skip
    """Over the ends of episodes and of the rings, as rows come one by one or many at a time."""
    replay, rng = make(way, len(streams), num_rows, stack, n_step, sampler), np.random.default_rng(0)
    sampled_at = data.draw(st.sets(st.integers(0, len(streams[0]) - 1)))
    for i, events in enumerate(zip(*streams, strict=True)):
        append(replay, events, tensors=form_of(way, form, i))
        if isinstance(replay.storage.host, SharedStorage):  # other processes wait for the learner
            replay.storage.receive()
        if i in sampled_at and naive_of_all([stream[: i + 1] for stream in streams], num_rows, stack, n_step):
            learn(replay.sample(8), rng.exponential(size=8))
    expected = naive_of_all(streams, num_rows, stack, n_step)
    if expected:
        batch = replay.sample(1500)
        assert batch.observations.shape == (1500, stack * 2, 3) and batch.observations.dtype == torch.uint8
        drawn = keys(batch)
        np.testing.assert_allclose(batch.rewards.cpu(), [expected[key] for key in drawn], rtol=1e-6, atol=1e-4)
        assert len(set(drawn)) > 0.9 * len(expected)  # 1500 draws over at most 120 transitions miss hardly any
    elif sampler is uniform:
        with pytest.raises(LookupError, match="no complete transition yet"):
            replay.sample(8)
    replay.close()


def test_every_transition_is_drawn_equally_often() -> None:
    stream = [Event(i + 1, 0, 0.0, i % 5 == 3, False, i % 5 == 0, i % 5 != 4) for i in range(50)]
    drawn = fill(uniform(storage_of(1, 100)), [stream]).sample(80_000).observations[:, 0, 0].numpy()
    counts = np.bincount(drawn)[[e.number for e in stream[:-1] if e.transition]]
    assert counts.min() > 0.9 * 80_000 / len(counts) and counts.max() < 1.1 * 80_000 / len(counts)


@every_sampler
def test_environments_written_at_different_speeds_stay_apart(sampler: Callable[..., ReplayBuffer]) -> None:
    """Several actors write their own environments, and draws are weighted by the rows of each."""
    replay = sampler(storage_of(2, 50))
    for i in range(30):
        for env_index in (0, 1) if i % 3 == 0 else (0,):
            append(replay, [Event(100 * env_index + i, first=i == 0)], env_index)
    assert [replay.storage.rows_written(0), replay.storage.rows_written(1)] == [30, 10]
    batch = replay.sample(4000)
    of_second = batch.observations[:, 0, 0] >= 100
    np.testing.assert_array_equal(of_second, batch.next_observations[:, 0, 0] >= 100)
    assert 0.18 < of_second.float().mean() < 0.30  # 9 of 38


@every_sampler
@every_form
@every_way
def test_every_way_draws_the_same_and_resumes(way: Any, form: str, sampler: Callable[..., ReplayBuffer]) -> None:
    def empty(way: Any) -> ReplayBuffer:
        return make(way, 1, 40, 3, 2, sampler)

    stream = short_episodes(60)
    usual, other = empty(WAYS["view"]), empty(way)
    for stage in range(3):
        for i, event in enumerate(stream[20 * stage : 20 * (stage + 1)]):
            append(usual, [event])
            append(other, [event], tensors=form_of(way, form, i))
            other.storage.receive()
        for _ in range(2):
            batches = usual.sample(16), other.sample(16)
            assert_equal(*batches)
            if sampler is prioritized:
                torch.testing.assert_close(*(batch.weights.cpu() for batch in batches))
            for batch in batches:
                learn(batch, np.linspace(0, 3, 16))
        np.testing.assert_array_equal(usual.storage.frames_of(0, 0, 60), other.storage.frames_of(0, 0, 60))
        np.testing.assert_array_equal(usual.storage.recent_frames(7), other.storage.recent_frames(7))
        usual, other = (resumed(a, empty(b)) for a, b in ((other, WAYS["view"]), (usual, way)))
    usual.close()
    other.close()


def resumed(before: ReplayBuffer, after: ReplayBuffer) -> ReplayBuffer:
    after.load_state_dict(before.state_dict())
    before.close()
    return after


@every_sampler
def test_rings_of_another_length_take_over_the_rows_they_hold(sampler: Callable[..., ReplayBuffer]) -> None:
    """Rows that were not restored are never drawn, also in a copy of a copy: their frames would be blank in stacks."""
    first, longer, longest, shorter = replays = [sampler(storage_of(1, num_rows, 3)) for num_rows in (10, 50, 60, 6)]
    fill(first, [one_episode(30)])
    learn(first.sample(8), np.linspace(0, 5, 8))
    for before, after in ((first, longer), (longer, longest), (longest, shorter)):
        after.load_state_dict(before.state_dict())
        if sampler is prioritized:
            kept = 3 if after is shorter else 7
            saved, restored = (priorities(replay)[0, np.arange(29 - kept, 29) % n] for replay, n in
                               ((first, 10), (after, after.storage.num_rows)))  # fmt: skip
            np.testing.assert_array_equal(restored, saved)
    for buffer in replays:
        observations = buffer.sample(2000).observations[:, ::2, 0].numpy()
        # Rows 21 to 30, or 25 to 30, are stored, and row 30 has no next one.
        assert set(observations[:, -1].tolist()) == set(range(27 if buffer is shorter else 23, 30))
        np.testing.assert_array_equal(np.diff(observations.astype(int)), 1)


@every_way
@settings(max_examples=20, deadline=None)
@given(streams=event_streams(), data=st.data())
def test_truncation_closes_open_episodes(way: Any, streams: list[list[Event]], data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(streams[0])))
    before, after = [s[:at] for s in streams], [s[:5] for s in streams]  # every stream begins with an episode

    def filled(*parts: list[list[Event]]) -> DeviceStorage:
        storage = make(way, len(streams), 64, 2, 3).storage
        for part in parts:
            for i, events in enumerate(zip(*part, strict=True)):
                append(storage, events, tensors=form_of(way, "in turns", i))
                storage.receive()
        return storage

    truncated = filled(before)
    env, row = truncated.truncate_open_episodes(0, len(streams))
    open_now = [i for i, stream in enumerate(before) if stream[-1].transition]
    assert (env.tolist(), row.tolist()) == (open_now, [at - 1] * len(open_now))  # no transitions any longer
    expected = []
    for stream in before:
        *earlier, last = copy.deepcopy(stream)
        if earlier and earlier[-1].transition and not earlier[-1].terminated and not last.first:
            earlier[-1].truncated = True
        last.transition = last.terminated = last.truncated = False
        expected.append([*earlier, last])
    whole = filled(expected, after)
    for i, events in enumerate(zip(*after, strict=True)):
        append(truncated, events, tensors=form_of(way, "in turns", i))
        truncated.receive()
    for name in ("frames", "transition", "terminated", "truncated", "age"):
        np.testing.assert_array_equal(host(truncated.columns[name]), host(whole.columns[name]), name)
    truncated.close()
    whole.close()
