"""What the learner holds as tensors, against NumPy on the host that keeps every row."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from conftest import untimed
from hypothesis import given, settings
from hypothesis import strategies as st
from test_uniform import GAMMA, Event, append, lanes

from dqnspeed.buffers import (
    LocalBuffers,
    Rings,
    RolloutBuffer,
    Rows,
    SharedBuffers,
    TransitionQueue,
    UniformReplay,
    ring_layout,
)
from dqnspeed.buffers.base import ReplayArguments
from dqnspeed.buffers.prioritized import PrioritizedReplay
from dqnspeed.buffers.ring_buffer import ACTING
from dqnspeed.execution.arrays import Arrays, host
from dqnspeed.execution.compiling import compiled
from dqnspeed.execution.counter_rng import GOLDEN, CounterGenerator
from dqnspeed.execution.transfer import pack, packed_size, unpack

# Where rows are held: in the arrays that are written, or in copies that they join through arrays which are shorter,
# or as long but written by others.
WAYS = {
    "view": (LocalBuffers, None, None),
    "staged": (LocalBuffers, 3, None),
    "shared": (SharedBuffers, 3, None),
    "shared, whole": (SharedBuffers, None, None),
    "tensors": (LocalBuffers, None, "cpu"),  # what a GPU does, on a CPU
    "tensors, staged": (LocalBuffers, 3, "cpu"),
    "tensors, shared": (SharedBuffers, 3, "cpu"),
    "cuda": (LocalBuffers, 3, "cuda"),
}
every_way = pytest.mark.parametrize(
    "way", [pytest.param(way, id=name, marks=[pytest.mark.cuda] * (way[2] == "cuda")) for name, way in WAYS.items()]
)
# How rows come; tensors are where the rings are held.
FORMS = {"arrays": (False,), "tensors": (True,), "in turns": (False, True, True)}
every_form = pytest.mark.parametrize("form", FORMS)


def make(way: Any, streams: int, rows: int, stack: int, n_step: int) -> UniformReplay:
    kind, frames, device = way
    buffers = kind(ring_layout(streams, rows, (2, 3), np.dtype(np.uint8), frames=frames))
    where = device and torch.device(device)
    return UniformReplay(ReplayArguments(buffers, stack, n_step, GAMMA, seed=1, device=where))


def form_of(way: Any, form: str, step: int) -> str | None:
    """The device of the tensors that the rows of a step come as, if they do."""
    return (way[2] or "cpu") if FORMS[form][step % len(FORMS[form])] else None


def reference(
    streams: list[list[Event]], lane: np.ndarray, row: np.ndarray, stack: int, n_step: int
) -> dict[str, np.ndarray]:
    """The batch that starts at ``row``, by NumPy, an operation for each step and frame."""

    def column(name: str, lane: np.ndarray, row: np.ndarray, dtype: Any) -> np.ndarray:
        return np.array([[getattr(e, name) for e in events] for events in streams], dtype)[lane, row]

    def stacks(row: np.ndarray) -> np.ndarray:
        frames = []
        for _ in range(stack):
            frames.append(column("number", lane, row, np.uint8))
            row = row - ~column("first", lane, row, bool)
        return np.repeat(np.stack(frames[::-1], axis=1), 2, axis=1)[..., None].repeat(3, axis=2)

    gammas = (GAMMA ** np.arange(n_step + 1)).astype(np.float32)
    rewards = column("reward", lane, row, np.float32)
    terminated = column("terminated", lane, row, bool)
    running, steps = ~(terminated | column("truncated", lane, row, bool)), np.ones(len(row), np.int64)
    for k in range(1, n_step):
        rewards = rewards + running * gammas[k] * column("reward", lane, row + k, np.float32)
        terminated = terminated | (running & column("terminated", lane, row + k, bool))
        steps += running
        running = running & ~(column("terminated", lane, row + k, bool) | column("truncated", lane, row + k, bool))
    return {
        "observations": stacks(row),
        "actions": column("action", lane, row, np.int64),
        "rewards": rewards,
        "next_observations": stacks(row + steps),
        "discounts": gammas[steps] * ~terminated,
    }


@pytest.mark.slow
@every_form
@every_way
@settings(max_examples=20, deadline=None)
@given(lanes(), st.integers(8, 45), st.integers(1, 4), st.integers(1, 5), st.data())
def test_batches_are_those_of_numpy_to_the_last_bit(
    way: Any, form: str, streams: list[list[Event]], rows: int, stack: int, n_step: int, data: st.DataObject
) -> None:
    """Over the ends of episodes, truncation and the end of the rings, as rows come one by one or many at a time."""
    replay = make(way, len(streams), rows, stack, n_step)
    seen = data.draw(st.sets(st.integers(0, len(streams[0]) - 1)))
    for i, events in enumerate(zip(*streams, strict=True)):
        append(replay, events, tensors=form_of(way, form, i))
        if i in seen or isinstance(replay.buffers, SharedBuffers):  # where others write, they wait for the learner
            replay.receive()
    replay.receive()
    if not replay._chances[0, -1]:
        replay.close()
        return
    lane, row = replay.draw(64)
    batch = replay._gather(lane, row)
    for name, expected in reference(streams, host(lane), host(row), stack, n_step).items():
        found = getattr(batch, name).cpu().numpy()
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected, name)
    replay.close()


PRIORITIES = {"alpha": 0.6, "beta": 0.4, "beta_final": 1.0, "beta_updates": 9, "priority_eps": 1e-6}
MEMORIES: dict[str, Any] = {
    "uniform": lambda buffers, where, *compiles: UniformReplay(
        ReplayArguments(buffers, 2, 3, GAMMA, 1, where, *compiles)
    ),
    "prioritized": lambda buffers, where, *compiles: PrioritizedReplay(
        ReplayArguments(buffers, 2, 3, GAMMA, 1, where, *compiles), **PRIORITIES
    ),
    "stream": lambda buffers, where: TransitionQueue(buffers, 2, 3, GAMMA, 30, where),
    "rollouts": lambda buffers, where, *compiles: RolloutBuffer(buffers, 2, 4, 2, GAMMA, 0.8, 0, where, *compiles),
}


@pytest.mark.slow
def test_a_compiled_draw_multiplies_no_index_by_what_takes_64_bits() -> None:
    """A GPU's compiler counts indices in 32."""
    from torch._inductor.utils import run_and_get_code

    plain, joined = (CounterGenerator(1, Arrays(torch.device("cpu"))) for _ in range(2))
    drawn, sources = run_and_get_code(compiled(joined.below), 7, 100)
    assert torch.equal(drawn, plain.below(7, 100))
    assert sources and str(2**64 - GOLDEN) not in "".join(sources)


KERNELS = {"uniform": 10, "prioritized": 12, "rollouts": 4}  # one by one they are 70, 92 and 10


@pytest.mark.slow
@pytest.mark.parametrize("buffer", KERNELS)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_what_is_compiled_draws_the_same_by_few_kernels(device: str, buffer: str) -> None:
    from torch._inductor import metrics

    numbers = np.random.default_rng(0).normal(size=60).astype(np.float32)  # whose sums are rounded
    layout = ring_layout(1, 64, (2, 3), np.dtype(np.uint8), acting=buffer == "rollouts")
    plain, joined = (MEMORIES[buffer](LocalBuffers(layout), torch.device(device), how) for how in (False, True))
    for i, number in enumerate(numbers.tolist()):
        event = Event(i + 1, i % 3, number, i % 9 == 7, False, i % 9 == 0, i % 9 != 8)
        for one in (plain, joined):
            append(one, [event], **(dict.fromkeys(ACTING, np.full(1, number)) if buffer == "rollouts" else {}))
    metrics.reset()
    for _ in range(3):
        batches = [one.sample(4) for one in (plain, joined)]
        for name in (f.name for f in fields(batches[0]) if isinstance(getattr(batches[0], f.name), torch.Tensor)):
            if name == "weights":  # powers, which libraries round differently
                torch.testing.assert_close(*(batch.weights for batch in batches))
            else:
                assert torch.equal(*(getattr(batch, name) for batch in batches)), name
        if buffer == "prioritized":
            for batch in batches:
                batch.reprioritize(torch.tensor([0.1, 3.0, 0.02, 1.0], device=device))
    assert 0 < metrics.generated_kernel_count <= KERNELS[buffer]
    for one in (plain, joined):
        one.close()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@settings(max_examples=30, deadline=None)
@given(lanes(), st.data())
def test_priorities_as_tensors_draw_and_weigh_as_arrays_do(
    device: str, streams: list[list[Event]], data: st.DataObject
) -> None:
    layout = ring_layout(len(streams), 24, (2, 3), np.dtype(np.uint8))
    arrays, tensors = (MEMORIES["prioritized"](LocalBuffers(layout), where) for where in (None, torch.device(device)))
    errors = np.random.default_rng(data.draw(st.integers(0, 99)))
    for i, events in enumerate(zip(*streams, strict=True)):
        for replay in (arrays, tensors):
            append(replay, events)
        if i % 5 != 4:
            continue
        try:
            expected = arrays.sample(6)
        except LookupError:
            continue
        drawn, given_errors = tensors.sample(6), torch.from_numpy(errors.exponential(size=6).astype(np.float32))
        for part in ("observations", "actions", "rewards", "next_observations", "discounts"):
            assert torch.equal(getattr(drawn, part).cpu(), getattr(expected, part)), part
        torch.testing.assert_close(drawn.weights.cpu(), expected.weights)
        for batch, where in ((expected, "cpu"), (drawn, device)):
            batch.reprioritize(given_errors.to(where))
        np.testing.assert_allclose(host(tensors._tree.values), arrays._tree.values, rtol=1e-12)
    for replay in (arrays, tensors):
        replay.close()


@pytest.mark.slow
@pytest.mark.parametrize("buffer", MEMORIES)
@pytest.mark.parametrize("form", ["tensors", "in turns"])
@pytest.mark.parametrize("device", [None, "cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@settings(max_examples=12, deadline=None)
@given(lanes(), st.sampled_from([3, 8, None]), st.booleans(), st.data())
def test_however_rows_come_batches_and_what_is_saved_are_the_same_to_the_last_bit(
    device: str | None, form: str, buffer: str, streams: list[list[Event]], frames: int | None, apart: bool,
    data: st.DataObject,
) -> None:  # fmt: skip
    """``apart``: each lane is written by itself, as by groups of environments that take turns."""
    layout = ring_layout(len(streams), 24, (2, 3), np.dtype(np.uint8), acting=True, frames=frames)
    usual, other = (MEMORIES[buffer](LocalBuffers(layout), device and torch.device(device)) for _ in range(2))
    way = None, None, device
    looks = data.draw(st.sets(st.integers(0, len(streams[0]) - 1)))
    for i, events in enumerate(zip(*streams, strict=True)):
        groups = [[event] for event in events] if apart else [events]
        for lane, group in enumerate(groups):
            known = {name: np.full(len(group), i + lane) for name in ("values", "log_probs", "versions")}
            append(usual, group, lane, **known)
            append(other, group, lane, form_of(way, form, i), **known)
        if hasattr(usual, "due"):
            assert usual.due(4) == other.due(4)
            draws = usual.due(4)
        else:
            draws = i in looks
        for _ in range(draws):
            try:
                expected = usual.sample(4)
            except LookupError:
                continue
            batch = other.sample(4)
            for name in (f.name for f in fields(expected) if isinstance(getattr(expected, f.name), torch.Tensor)):
                assert torch.equal(getattr(batch, name), getattr(expected, name)), name
            if getattr(batch, "reprioritize", None):
                for one in (batch, expected):
                    one.reprioritize(torch.arange(4.0, device=device))
    np.testing.assert_equal(untimed(other.state_dict()), untimed(usual.state_dict()))


@pytest.mark.cuda
@pytest.mark.parametrize("buffer", MEMORIES)
def test_nothing_waits_for_the_device_while_its_tensors_are_added(buffer: str) -> None:
    layout = ring_layout(2, 24, (2, 3), np.dtype(np.uint8), acting=True, frames=8)
    rings = MEMORIES[buffer](LocalBuffers(layout), torch.device("cuda"))
    no, frames = np.zeros(2, bool), torch.zeros(2, 2, 3, dtype=torch.uint8, device="cuda")
    try:
        for step in range(60):  # round the ring
            if step == 20:  # what is taken in for the first time is prepared
                torch.cuda.set_sync_debug_mode("error")
            frames.fill_(step)
            rings.append(Rows(frames, np.zeros(2, int), np.zeros(2, np.float32), no, no, no, ~no))
            rings.receive()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    np.testing.assert_array_equal(rings.frames_of(1, 0, 60)[:, 0, 0], np.arange(36, 60))


def test_tensors_are_copied_once_and_not_through_the_host() -> None:
    """The arrays through which others come stay empty, and what was added may be overwritten."""
    replay = make(WAYS["tensors, staged"], 1, 40, 1, 1)
    no, frames = np.zeros(1, bool), torch.ones(1, 2, 3, dtype=torch.uint8)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        replay.append(Rows(frames, np.zeros(1, int), np.zeros(1, np.float32), no, no, ~no, ~no))
    assert [event.count for event in profile.key_averages() if event.key == "aten::copy_"] == [1]
    frames.zero_()
    assert not replay._columns["frames"].any() and (replay.frames_of(0, 0, 1) == 1).all()


def test_tensors_of_this_process_and_rows_of_others_stay_apart() -> None:
    replay = make(WAYS["tensors, shared"], 2, 40, 1, 1)
    writer = Rings(replay.buffers)
    for i in range(20):
        append(writer, [Event(100 + i, 0, 0.0, False, False, i == 0, True)], lane=1)
        append(replay, [Event(1 + i, 0, 0.0, False, False, i == 0, True)], tensors="cpu")
    for lane, begin in ((0, 1), (1, 100)):
        np.testing.assert_array_equal(replay.frames_of(lane, 0, 20)[:, 0, 0], np.arange(begin, begin + 20))
    del writer
    replay.close()


@every_form
@every_way
def test_every_way_draws_the_same_and_goes_on_with_what_another_saved(way: Any, form: str) -> None:
    streams = [[Event(i + 1, i % 3, 1.0, i % 9 == 7, False, i % 9 == 0, i % 9 != 8) for i in range(60)]]
    usual, other = make(WAYS["view"], 1, 40, 3, 2), make(way, 1, 40, 3, 2)
    for stage in range(3):
        for i, event in enumerate(streams[0][20 * stage : 20 * (stage + 1)]):
            append(usual, [event])
            append(other, [event], tensors=form_of(way, form, i))
            other.receive()
        for _ in range(2):
            assert_equal(usual.sample(16), other.sample(16))
        np.testing.assert_array_equal(usual.frames_of(0, 0, 60), other.frames_of(0, 0, 60))
        np.testing.assert_array_equal(usual.recent_frames(7), other.recent_frames(7))
        usual, other = (goes_on(a, make(b, 1, 40, 3, 2)) for a, b in ((other, WAYS["view"]), (usual, way)))
    usual.close()
    other.close()


def goes_on(before: UniformReplay, after: UniformReplay) -> UniformReplay:
    after.load_state_dict(before.state_dict())
    before.close()
    return after


def assert_equal(one: Any, other: Any) -> None:
    for name in ("observations", "actions", "rewards", "next_observations", "discounts"):
        np.testing.assert_array_equal(getattr(one, name).cpu(), getattr(other, name).cpu(), name)


@every_form
@every_way
def test_a_cut_reaches_what_is_held(way: Any, form: str) -> None:
    stream = [Event(i + 1, 0, 1.0, False, False, i == 0, True) for i in range(10)]
    replay = make(way, 1, 40, 2, 3)
    for i, event in enumerate(stream):
        append(replay, [event], tensors=form_of(way, form, i))
        replay.receive()
    assert replay.cut(0, 1) == [(0, 9)]
    for i, event in enumerate(stream):
        append(replay, [event], tensors=form_of(way, form, i))
        replay.receive()
    batch = replay.sample(400)
    numbers = batch.observations[:, -1, 0].cpu().numpy().astype(int)
    np.testing.assert_array_equal(
        batch.next_observations[:, -1, 0].cpu(), np.where(numbers > 7, 10, numbers + 3)
    )  # no step leads over the gap
    replay.close()


def test_actors_may_write_as_far_ahead_as_there_is_room() -> None:
    replay = make(WAYS["shared"], 1, 40, 1, 1)
    writer = Rings(replay.buffers)
    event = Event(1, 0, 0.0, False, False, False, True)
    for _ in range(30):
        while writer.rows(0) < replay._received[0] + 3:
            append(writer, [event])
        assert replay.rows_allowed()[0] == writer.rows(0) + 3  # all were received
    assert replay.rows(0) > 40
    assert np.isinf(make(WAYS["view"], 1, 40, 1, 1).rows_allowed()).all()
    del writer
    replay.close()


def test_a_writer_that_was_killed_in_the_act_holds_up_nobody() -> None:
    buffers = SharedBuffers(ring_layout(4, 40, (2, 3), np.dtype(np.uint8), frames=9), writers=2)
    replay, event = UniformReplay(ReplayArguments(buffers, 1, 1, GAMMA)), Event(1, 0, 0.0, False, False, False, True)
    writers = Rings(buffers), Rings(buffers)
    for _ in range(3):
        for i, writer in enumerate(writers):
            append(writer, [event, event], lane=2 * i)
    assert replay.cursors().tolist() == [3, 3, 3, 3]
    buffers.locks[0].acquire()  # by the first, that is killed now
    append(writers[1], [event, event], lane=2)
    assert replay.cursors().tolist() == [3, 3, 4, 4]
    replay.writer_gone(0)
    append(Rings(buffers), [event, event], lane=0)
    assert replay.cursors().tolist() == [4, 4, 4, 4]
    replay.writer_gone(0)  # whose lock was free
    assert all(lock.acquire(block=False) for lock in buffers.locks)
    del writers
    replay.close()


def test_frames_on_their_way_take_little_beside_those_that_are_held() -> None:
    """Docker's containers have 64 MB of shared memory unless they ask for more."""
    from conftest import make_run

    from dqnspeed.algorithms import algorithm_of
    from dqnspeed.buffers.storage import layout_bytes
    from dqnspeed.envs import describe

    run = make_run("parallelism=process", "num_envs=8", "replay.buffer_size=1000000")
    algorithm, spec = algorithm_of(run), describe(run)
    assert layout_bytes(algorithm.arrays(run, spec, None)) < 2**25
    assert layout_bytes(algorithm.layout(run, spec)) > 7e9


# random numbers


def splitmix(state: int, count: int) -> list[int]:
    """The algorithm as it is published, in whole numbers."""
    numbers = []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
        numbers.append(z ^ (z >> 31))
    return numbers


DEVICES = [None, "cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


@pytest.mark.parametrize("device", DEVICES)
def test_random_numbers_are_those_of_splitmix_on_every_device(device: str | None) -> None:
    random = CounterGenerator(7, Arrays(device and torch.device(device)))
    place = random.state_dict()["place"]
    drawn = [*random._draw(5).tolist(), *random._draw(1000).tolist()]
    assert [n % 2**64 for n in drawn] == splitmix(place % 2**64, 1005)
    # The first numbers of the published generator from the state 1234567.
    assert splitmix(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 2**31))
def test_whole_numbers_are_below_their_bound_and_go_on_where_they_stood(seed: int, bound: int) -> None:
    random, again = CounterGenerator(seed, Arrays(torch.device("cpu"))), CounterGenerator(0, Arrays(None))
    place = random.state_dict()["place"] % 2**64
    first = random.below(torch.tensor(bound), 50)
    assert first.tolist() == [(n * bound) >> 64 for n in splitmix(place, 50)]
    again.load_state_dict(random.state_dict())
    np.testing.assert_array_equal(random.uniform(9), again.uniform(9))


def test_fractions_fill_their_range_evenly() -> None:
    drawn = torch.from_numpy(CounterGenerator(3, Arrays(None)).uniform(100_000))
    assert drawn.min() >= 0 and drawn.max() < 1
    counts = torch.histc(drawn, bins=10, min=0, max=1)
    assert ((counts - 10_000).abs() < 500).all()


# the way to the device


def test_what_is_packed_comes_out_as_it_was() -> None:
    given_ = {
        "a": torch.arange(7, dtype=torch.int64), "b": torch.tensor(True), "c": torch.rand(3, 5),
        "d": torch.empty(0, 4), "e": torch.arange(11, dtype=torch.uint8)[None],
    }  # fmt: skip
    buffer = torch.full((packed_size(given_) + 13,), 255, dtype=torch.uint8)
    pack(given_, buffer)
    for name, found in unpack(given_, buffer).items():
        assert found.dtype == given_[name].dtype and found.shape == given_[name].shape
        np.testing.assert_array_equal(found, given_[name])
