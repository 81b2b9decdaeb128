"""Queue of transitions against a naive reference that keeps whole episodes in lists."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import make_toy
from event_streams import (
    GAMMA,
    Event,
    append,
    as_arrays_or_tensors,
    event_streams,
    fill,
    keys,
    naive_of_all,
    one_episode,
    storage_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from dqnspeed.algorithms import make_buffer
from dqnspeed.buffers import RolloutBuffer, Rows, TransitionQueue
from dqnspeed.envs import describe
from dqnspeed.training.schedule import BufferSchedule, LearningStart, make_schedule


@pytest.mark.slow
@as_arrays_or_tensors
@settings(max_examples=100, deadline=None)
@given(event_streams(), st.integers(1, 3), st.integers(1, 5), st.integers(1, 12), st.data())
def test_a_queue_gives_every_transition_once_and_in_order(
    tensors: str | None, streams: list[list[Event]], stack: int, n_step: int, batch_size: int, data: st.DataObject
) -> None:
    num_rows, device = len(streams[0]) + 1, tensors and torch.device(tensors)
    storage = storage_of(
        len(streams), num_rows, stack, n_step, device=device, acting=True, num_frames=3 if tensors else None
    )
    queue = TransitionQueue(storage, GAMMA, max_waiting=2 * batch_size)
    schedule = BufferSchedule(queue, batch_size, agent_steps=0)
    expected = naive_of_all(streams, num_rows, stack, n_step)
    seen: list[tuple] = []
    for events in zip(*streams, strict=True):
        append(queue, events, tensors=tensors)
        if data.draw(st.booleans()):
            for _ in range(schedule.due(0, 0)):
                batch = queue.sample(batch_size)
                for key, reward in zip(keys(batch), batch.rewards.tolist(), strict=True):
                    assert reward == pytest.approx(expected[key], abs=1e-4)
                    seen.append(key[0])
            assert queue.due(batch_size) == 0
            assert queue.waiting() < batch_size + n_step * len(streams)  # else there was a batch
    assert len(set(seen)) == len(seen) == queue.taken
    for env in range(len(streams)):
        newest = [s[-1] for s in seen if 80 * env < s[-1] <= 80 * (env + 1)]
        assert newest == sorted(newest)
    transitions = sum(event.transition for events in streams for event in events)
    assert queue.waiting() == transitions - queue.taken
    assert schedule.limit(0) == queue.taken + queue.capacity


def queue_of(num_rows: int) -> TransitionQueue:
    return TransitionQueue(storage_of(1, num_rows, acting=True), GAMMA, max_waiting=20)


@pytest.mark.parametrize("kind", ["queue", "rollouts"])
def test_experience_from_before_learning_started_is_discarded(kind: str) -> None:
    storage = storage_of(1, 64, acting=True)
    buffer = queue_of(64) if kind == "queue" else RolloutBuffer(storage, 4, 1, GAMMA, 0.8)
    for i, event in enumerate(one_episode(20)):
        if i == 10:
            buffer.discard_pending()
        append(buffer, [event])
    assert buffer.sample(4).observations.min() == 11 and buffer.taken >= 10


@pytest.mark.parametrize("kind", ["queue", "rollouts"])
def test_the_last_step_of_a_truncated_episode_never_waits_again(kind: str) -> None:
    storage = storage_of(1, 64, acting=True)
    buffer = TransitionQueue(storage, GAMMA, 20) if kind == "queue" else RolloutBuffer(storage, 4, 1, GAMMA, 0.8)
    fill(buffer, [one_episode(7)])
    assert (buffer.waiting(), buffer.taken) == (7, 0)
    buffer.truncate_open_episodes(0, 1)
    assert (buffer.waiting(), buffer.taken) == (6, 1)


@pytest.mark.parametrize("algo", ["a3c", "ppo"])
def test_nothing_is_overwritten_before_it_is_learnt_from_even_by_an_actor_that_runs_alone(algo: str) -> None:
    actors = 3 if algo == "a3c" else 1
    run = make_toy(f"algo={algo}", "parallelism=process", "num_envs=2", f"parallelism.num_actors={actors}",
                   "algo.batch_size=16")  # fmt: skip
    buffer = make_buffer(run, describe(run))
    try:
        schedule = make_schedule(run, buffer, LearningStart(0, 0))
        steps = row = 0
        no, yes, numbers = np.zeros(2, bool), np.ones(2, bool), []
        while steps < schedule.limit(0):  # games of one step, whose every other row is a final frame
            ended, frame = row % 2 == 1, np.full((2, 3), row, np.float32)
            buffer.storage.append(Rows(frame, np.zeros(2, int), np.zeros(2, np.float32), no if ended else yes, no,
                               no if ended else yes, no if ended else yes))  # fmt: skip
            steps, row = steps + 2 * (not ended), row + 1
        while due := schedule.due(0, 0):
            for _ in range(due):
                numbers += buffer.sample(16).observations[:, 0].tolist()
        assert min(numbers) == 0 and set(numbers) == set(range(0, int(max(numbers)) + 1, 2))
    finally:
        buffer.close()


@pytest.mark.parametrize("num_rows", [30, 400])
def test_rings_of_another_length_take_over_rows_that_are_still_to_be_read(num_rows: int) -> None:
    before, after = queue_of(40), queue_of(num_rows)
    for i, event in enumerate(one_episode(100)):
        append(before, [event])
        if i == 80:
            before.discard_pending()
    after.load_state_dict(before.state_dict())
    np.testing.assert_array_equal(after.sample(10).observations[:, 0, 0], np.arange(82, 92))


@pytest.mark.parametrize("kind", ["queue", "rollouts"])
def test_only_rows_that_are_still_to_be_read_are_saved_with_the_stacks_before_them(kind: str) -> None:
    def empty() -> TransitionQueue | RolloutBuffer:
        storage = storage_of(2, 300, 3, 2 if kind == "queue" else 1, acting=True)
        return TransitionQueue(storage, GAMMA, 50) if kind == "queue" else RolloutBuffer(storage, 8, 1, GAMMA, 0.8)

    def play(into: TransitionQueue | RolloutBuffer, env_index: int, steps: range) -> None:
        for i in steps:
            append(into, [Event(i % 200, 0, 1000.0 * env_index + i, first=i % 7 == 0)], env_index)

    before, after = empty(), empty()
    play(before, 0, range(400))  # round the ring
    play(before, 1, range(390))
    assert before.state_dict()["columns"]["frames"]["0"].shape[0] == 300  # the background may still be measured on it
    before.discard_pending()
    play(before, 0, range(400, 415))
    play(before, 1, range(390, 412))
    for _ in range(before.due(8)):
        before.sample(8)
    saved = before.state_dict()
    assert saved["columns"]["frames"]["0"].shape[0] <= 22 + 4
    after.load_state_dict(saved)
    assert (
        len(after.storage.frames_of(0, 380, 415)) < len(before.storage.frames_of(0, 380, 415)) == 35
    )  # no rows that were not saved
    for both in (before, after):
        play(both, 0, range(415, 440))
        play(both, 1, range(412, 440))
    while before.due(8):
        ours, theirs = before.sample(8), after.sample(8)
        for name in ("observations", "actions", *(("versions", "rewards") if kind == "queue" else ("returns",))):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    assert after.due(8) == 0
