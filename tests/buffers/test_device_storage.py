"""Rows as the learner stores them: on a device, through arrays that others write, and as one kernel draws them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from conftest import mostly_integration
from event_streams import GAMMA, Event, append, fill, one_episode, prioritized, storage_of, uniform

from dqnspeed.buffers import DeviceStorage, RingBuffer, RolloutBuffer, Rows, SharedStorage, TransitionQueue, ring_layout
from dqnspeed.buffers.ring_buffer import POLICY_COLUMNS

BUFFERS: dict[str, Any] = {
    "uniform": uniform,
    "prioritized": prioritized,
    "queue": lambda storage: TransitionQueue(storage, GAMMA, 30),
    "rollouts": lambda storage, compiles=False: RolloutBuffer(storage, 4, 2, GAMMA, 0.8, 0, compiles),
}
KERNELS = {"uniform": 10, "prioritized": 12, "rollouts": 4}  # one by one they are 70, 92 and 10


@pytest.mark.integration
@pytest.mark.parametrize("name", mostly_integration(KERNELS, "rollouts"))
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_compiled_draws_are_equal_and_take_few_kernels(device: str, name: str) -> None:
    from torch._inductor import metrics

    numbers = np.random.default_rng(0).normal(size=60).astype(np.float32)  # whose sums are rounded
    plain, compiled = (
        BUFFERS[name](storage_of(1, 64, 2, 3, device=torch.device(device), acting=name == "rollouts"), compiles)
        for compiles in (False, True)
    )
    for i, number in enumerate(numbers.tolist()):
        event = Event(i + 1, i % 3, number, i % 9 == 7, False, i % 9 == 0, i % 9 != 8)
        for one in (plain, compiled):
            append(one, [event], **(dict.fromkeys(POLICY_COLUMNS, np.full(1, number)) if name == "rollouts" else {}))
    metrics.reset()
    for _ in range(3):
        batches = [one.sample(4) for one in (plain, compiled)]
        for part in tensors_of(batches[0]):
            if part == "weights":  # powers, which libraries round differently
                torch.testing.assert_close(*(batch.weights for batch in batches))
            else:
                assert torch.equal(*(getattr(batch, part) for batch in batches)), part
        if name == "prioritized":
            for batch in batches:
                batch.update_priorities(torch.tensor([0.1, 3.0, 0.02, 1.0], device=device))
    assert 0 < metrics.generated_kernel_count <= KERNELS[name]
    for one in (plain, compiled):
        one.close()


def tensors_of(batch: Any) -> list[str]:
    return [f.name for f in fields(batch) if isinstance(getattr(batch, f.name), torch.Tensor)]


@pytest.mark.parametrize("name", BUFFERS)
def test_a_blank_batch_has_the_arrays_of_all_others(name: str) -> None:
    buffer = BUFFERS[name](storage_of(1, 64, 2, 1 if name == "rollouts" else 3, acting=True))
    for event in one_episode(40):
        append(buffer, [event], **dict.fromkeys(POLICY_COLUMNS, np.zeros(1)))
    drawn, blank = (
        {part: (getattr(batch, part).shape, getattr(batch, part).dtype) for part in tensors_of(batch)}
        for batch in (buffer.sample(4), buffer.blank(4))
    )
    assert drawn == blank


@pytest.mark.cuda
@pytest.mark.parametrize("name", BUFFERS)
def test_nothing_waits_for_the_device_while_its_tensors_are_added(name: str) -> None:
    device = torch.device("cuda")
    buffer = BUFFERS[name](
        storage_of(2, 24, 2, 1 if name == "rollouts" else 3, device=device, acting=True, num_frames=8)
    )
    no, frames = np.zeros(2, bool), torch.zeros(2, 2, 3, dtype=torch.uint8, device="cuda")
    try:
        for step in range(60):  # round the ring
            if step == 20:  # the first rows that are received prepare the device
                torch.cuda.set_sync_debug_mode("error")
            frames.fill_(step)
            buffer.storage.append(Rows(frames, np.zeros(2, int), np.zeros(2, np.float32), no, no, no, ~no))
            buffer.storage.receive()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    np.testing.assert_array_equal(buffer.storage.frames_of(1, 0, 60)[:, 0, 0], np.arange(36, 60))


def test_tensors_are_copied_once_and_not_through_the_host() -> None:
    """The arrays that actors write stay empty, and the tensor may be overwritten."""
    storage = storage_of(1, 40, device=torch.device("cpu"), num_frames=3)
    no, frames = np.zeros(1, bool), torch.ones(1, 2, 3, dtype=torch.uint8)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        storage.append(Rows(frames, np.zeros(1, int), np.zeros(1, np.float32), no, no, ~no, ~no))
    assert [event.count for event in profile.key_averages() if event.key == "aten::copy_"] == [1]
    frames.zero_()
    assert not storage.host.arrays["frames"].any() and (storage.frames_of(0, 0, 1) == 1).all()


def test_actors_may_write_as_far_ahead_as_there_is_room() -> None:
    storage = storage_of(1, 40, kind=SharedStorage, num_frames=3)
    writer = RingBuffer(storage.host)
    for _ in range(30):
        while writer.rows_written(0) < storage.received[0] + 3:
            append(writer, [Event(1)])
        assert storage.rows_allowed()[0] == writer.rows_written(0) + 3  # all were received
    assert storage.rows_written(0) > 40
    assert np.isinf(storage_of(1, 40).rows_allowed()).all()
    del writer
    storage.close()


def test_a_writer_that_was_killed_while_it_wrote_holds_up_nobody() -> None:
    host = SharedStorage(ring_layout(4, 40, (2, 3), np.dtype(np.uint8), num_frames=9), writers=2)
    storage, writers = DeviceStorage(host, 1, copies=True), [RingBuffer(host), RingBuffer(host)]
    for _ in range(3):
        for i, writer in enumerate(writers):
            append(writer, [Event(1), Event(1)], env_index=2 * i)
    assert storage.cursors().tolist() == [3, 3, 3, 3]
    host.locks[0].acquire()  # by the first writer, which is killed now
    append(writers[1], [Event(1), Event(1)], env_index=2)
    assert storage.cursors().tolist() == [3, 3, 4, 4]
    storage.writer_gone(0)
    append(RingBuffer(host), [Event(1), Event(1)], env_index=0)
    assert storage.cursors().tolist() == [4, 4, 4, 4]
    storage.writer_gone(0)  # whose lock was free
    assert all(lock.acquire(block=False) for lock in host.locks)
    del writers, writer
    storage.close()


def test_frames_of_an_episode_are_those_that_are_still_stored() -> None:
    storage = fill(storage_of(1, 10), [one_episode(25)])
    np.testing.assert_array_equal(storage.frames_of(0, 12, 20)[:, 0, 0], np.arange(16, 21))
    np.testing.assert_array_equal(storage.recent_frames(3)[:, 0, 0] % 10, [1, 5, 0])
