"""The replay against a naive reference that keeps whole episodes in lists."""

from __future__ import annotations

import copy
import random
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import make_run
from hypothesis import given, settings
from hypothesis import strategies as st

from dqnspeed.algorithms import algorithm_of, check_fits, make_network
from dqnspeed.buffers import LocalBuffers, Rings, Rows, SharedBuffers, UniformReplay, ring_layout
from dqnspeed.buffers.base import Replay, ReplayArguments
from dqnspeed.buffers.storage import layout_bytes
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import describe
from dqnspeed.system import machine

GAMMA = 0.9


@dataclass
class Event:
    """One row of one lane: what the environment did after the frame ``number``."""

    number: int  # unique, and the content of the frame
    action: int
    reward: float
    terminated: bool
    truncated: bool
    first: bool
    transition: bool


@st.composite
def lanes(draw: st.DrawFn) -> list[list[Event]]:
    """Equally long streams of rows with episodes of random lengths that terminate or are truncated."""
    length, count = draw(st.integers(8, 40)), draw(st.integers(1, 3))
    streams, drawn = [], random.Random(draw(st.integers(0, 2**32)))  # what the ends of episodes do not depend on
    for lane in range(count):
        stream: list[Event] = []
        while len(stream) < length:
            steps = draw(st.integers(0, 9))
            truncated = draw(st.booleans())
            for i in range(steps + 1):
                last = i == steps
                at_end = i == steps - 1
                stream.append(
                    Event(
                        number=1 + 80 * lane + len(stream),
                        action=drawn.randint(0, 5),
                        reward=0.0 if last else float(drawn.randint(-3, 3)),
                        terminated=at_end and not truncated,
                        truncated=at_end and truncated,
                        first=i == 0,
                        transition=not last,
                    )
                )
        streams.append(stream[:length])
    return streams


def fill(
    streams: list[list[Event]], rows: int, stack: int, n_step: int, shared: bool = False, tensors: str | None = None
) -> UniformReplay:
    layout = ring_layout(len(streams), rows, (2, 3), np.dtype(np.uint8))
    buffers = (SharedBuffers if shared else LocalBuffers)(layout)
    replay = UniformReplay(ReplayArguments(buffers, stack, n_step, GAMMA, seed=1))
    for events in zip(*streams, strict=True):
        append(replay, events, tensors=tensors)
    return replay


def append(
    rings: Rings, events: Sequence[Event], lane: int = 0, tensors: str | None = None, **acting: np.ndarray
) -> None:
    """``tensors``: the device that rows come from as tensors; ``None``: as NumPy's arrays."""
    rows = Rows(
        frames=np.array([np.full((2, 3), e.number, np.uint8) for e in events]),
        actions=np.array([e.action for e in events]),
        rewards=np.array([e.reward for e in events], np.float32),
        terminated=np.array([e.terminated for e in events]),
        truncated=np.array([e.truncated for e in events]),
        first=np.array([e.first for e in events]),
        transition=np.array([e.transition for e in events]),
        acting=acting,
    )
    rings.append(rows if tensors is None else rows._each(lambda column: torch.as_tensor(column).to(tensors)), lane)


as_arrays_or_tensors = pytest.mark.parametrize("tensors", [None, "cpu"], ids=["arrays", "tensors"])


def naive(stream: list[Event], rows: int, stack: int, n_step: int) -> dict[tuple, float]:
    """Every transition that a lane of ``rows`` can still give: its numbers, and the sum of its rewards."""
    oldest = max(0, len(stream) - rows)
    expected = {}

    def frames(at: int) -> tuple[int, ...] | None:
        numbers = []
        for _ in range(stack):
            if at < oldest:
                return None
            numbers.append(stream[at].number)
            at -= not stream[at].first
        return tuple(reversed(numbers))

    for start in range(oldest, len(stream)):
        if not stream[start].transition or start + n_step > len(stream) - 1:
            continue
        total, at, terminated = 0.0, start, False
        for k in range(n_step):
            total += GAMMA**k * stream[at].reward
            terminated = stream[at].terminated
            over = terminated or stream[at].truncated
            at += 1
            if over:
                break
        before = frames(start)
        # Where the ring has wrapped, rows whose whole stack might be gone are not offered.
        if before is None or (oldest and start < oldest + stack - 1):
            continue
        discount = 0.0 if terminated else GAMMA ** (at - start)
        expected[(before, stream[start].action, frames(at), round(discount, 5))] = total
    return expected


@pytest.mark.slow
@as_arrays_or_tensors
@settings(max_examples=150, deadline=None)
@given(lanes(), st.integers(8, 45), st.integers(1, 4), st.integers(1, 5))
def test_samples_are_exactly_the_transitions_of_the_reference(
    tensors: str | None, streams: list[list[Event]], rows: int, stack: int, n_step: int
) -> None:
    replay = fill(streams, rows, stack, n_step, tensors=tensors)
    expected: dict[tuple, float] = {}
    for stream in streams:
        expected |= naive(stream, rows, stack, n_step)
    if not expected:
        with pytest.raises(LookupError):
            replay.sample(8)
        return
    batch = replay.sample(1500)
    assert batch.observations.shape == (1500, stack * 2, 3) and batch.observations.dtype == torch.uint8
    before, after = (map(tuple, of[:, ::2, 0].tolist()) for of in (batch.observations, batch.next_observations))
    discounts = (round(discount, 5) for discount in batch.discounts.tolist())
    drawn = list(zip(before, batch.actions.tolist(), after, discounts, strict=True))
    np.testing.assert_allclose(batch.rewards, [expected[key] for key in drawn], rtol=1e-6, atol=1e-4)
    seen = set(drawn)
    assert len(seen) > 0.9 * len(expected)  # 1500 draws over at most 120 transitions miss hardly any


def test_every_transition_is_drawn_equally_often() -> None:
    stream = [Event(i + 1, 0, 0.0, i % 5 == 3, False, i % 5 == 0, i % 5 != 4) for i in range(50)]
    replay = fill([stream], rows=100, stack=1, n_step=1)
    drawn = replay.sample(80_000).observations[:, 0, 0].numpy()
    counts = np.bincount(drawn)[[e.number for e in stream[:-1] if e.transition]]
    assert counts.min() > 0.9 * 80_000 / len(counts) and counts.max() < 1.1 * 80_000 / len(counts)


def test_shared_memory_gives_the_same_samples_and_is_gone_after_close() -> None:
    stream = [Event(i + 1, i % 3, 1.0, False, False, i == 0, True) for i in range(30)]
    local, shared = fill([stream], 40, 2, 3), fill([stream], 40, 2, 3, shared=True)
    a, b = local.sample(64), shared.sample(64)
    for part in ("observations", "actions", "rewards", "next_observations", "discounts"):
        np.testing.assert_array_equal(getattr(a, part), getattr(b, part))
    mapped = shared_pieces()
    shared.close()
    assert len(mapped) == 8 or sys.platform != "linux"
    assert not mapped & shared_pieces()


def shared_pieces() -> set[str]:
    """The files of shared memory that torch has mapped in this process."""
    maps = Path("/proc/self/maps")
    return {line for line in maps.read_text().splitlines() if "/torch_" in line} if maps.exists() else set()


def test_shared_memory_that_cannot_be_had_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(tensor: torch.Tensor) -> None:
        raise RuntimeError("unable to allocate shared memory(shm) for file </torch_1>: No space left on device (28)")

    monkeypatch.setattr(torch.Tensor, "share_memory_", full)
    with pytest.raises(
        ConfigError, match=r"transport=shared_memory: 100 bytes of .* could not be had \(.*No space left"
    ):
        SharedBuffers({"frames": ((10, 10), np.dtype(np.uint8))})


def test_lanes_written_at_different_speeds_stay_apart() -> None:
    """As with several actors: each writes its own lanes, and the draw is weighted by what they hold."""
    layout = ring_layout(2, 50, (1,), np.dtype(np.float32))
    replay = UniformReplay(ReplayArguments(LocalBuffers(layout), 1, 1, GAMMA))
    no, yes = np.zeros(1, bool), np.ones(1, bool)
    for i in range(30):
        for lane in (0, 1) if i % 3 == 0 else (0,):
            frame = np.full((1, 1), 100 * lane + i, np.float32)
            replay.append(
                Rows(frame, np.zeros(1, int), np.zeros(1, np.float32), no, no, yes if i == 0 else no, yes),
                lane,
            )
    assert replay.cursors().tolist() == [30, 10]
    batch = replay.sample(4000)
    lane1 = batch.observations[:, 0] >= 100
    np.testing.assert_array_equal(lane1, batch.next_observations[:, 0] >= 100)
    assert 0.18 < lane1.float().mean() < 0.30  # 9 of 38


def test_a_million_transitions_stay_under_7_5_gb() -> None:
    layout = ring_layout(1, 1_000_000, (1, 84, 84), np.dtype(np.uint8))
    assert layout_bytes(layout) < 7.5e9


FREE = 2**26  # the /dev/shm of one of Docker's containers


@pytest.mark.parametrize(
    "overrides",
    [
        "",
        "num_envs=3",
        "parallelism=process num_envs=200",  # each of which writes some frames ahead, whatever the capacity
        "parallelism=process num_envs=3 algo=ppo algo.num_steps=1000",
    ],
)
def test_what_is_too_large_is_refused_with_the_size_that_fits(overrides: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(*overrides.split())
    spec, (option, _, unit) = describe(run), algorithm_of(run).size(run)
    shared = "parallelism=process" in overrides and Path("/dev/shm").is_dir()
    monkeypatch.setattr(machine, "available_memory", lambda: 2**60 if shared else FREE)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=FREE))

    def sized(size: int) -> RunConfig:
        if option == "num_envs":
            return replace(run, num_envs=size)
        return replace(run, replay=replace(run.replay, buffer_size=size))

    with pytest.raises(ConfigError, match=rf"at most \d+ {unit} would fit") as refused:
        check_fits(sized(10**9), spec, None)
    fits = int(str(refused.value).split("at most ")[1].split(" ")[0])
    check_fits(sized(fits), spec, None)
    with pytest.raises(ConfigError):
        check_fits(sized(fits + run.total_envs), spec, None)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs /dev/shm")
@pytest.mark.parametrize("transport", ["shared_memory", "queue"])
def test_shared_memory_must_hold_the_weights_too_for_each_job_at_a_time(
    transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run("experiment=tweaked_process", f"parallelism.transport={transport}")
    spec, device = describe(run), None
    buffers = layout_bytes(algorithm_of(run).arrays(run, spec, device)) if run.shares_replay else 0
    weights = make_network(run, spec).num_bytes
    assert 6_000_000 < weights < 7_000_000
    free = (buffers + weights) / 0.9

    def check(free: float, jobs: int = 1) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
        check_fits(run, spec, device, jobs)

    check(1.01 * free)
    check(3.03 * free, jobs=3)
    with pytest.raises(ConfigError, match=r"of shared memory \(/dev/shm\) and .* can be had.* with --shm-size\.$"):
        check(0.99 * free)
    with pytest.raises(ConfigError, match=r"and .* can be had for each of 3 jobs at a time.* with --shm-size\.$"):
        check(2.97 * free, jobs=3)
    with pytest.raises(ConfigError, match=r"=\d+: needs \d+\.\d MB of shared .* and 3\.6 MB can be had\. A container"):
        check(4_000_000)  # where no size of the buffers would do


@given(streams=lanes(), data=st.data())
def test_a_cut_closes_the_episodes_in_progress_at_their_last_frames(
    streams: list[list[Event]], data: st.DataObject
) -> None:
    at = data.draw(st.integers(1, len(streams[0])))
    before, after = [s[:at] for s in streams], [s[:5] for s in streams]  # every stream begins with an episode
    cut = fill(before, rows=64, stack=2, n_step=3)
    cut.cut(0, len(streams))
    for events in zip(*after, strict=True):
        append(cut, events)
    expected = []
    for stream, more in zip(before, after, strict=True):
        *earlier, last = copy.deepcopy(stream)
        if earlier and earlier[-1].transition and not earlier[-1].terminated and not last.first:
            earlier[-1].truncated = True
        last.transition = last.terminated = last.truncated = False
        expected.append([*earlier, last, *more])
    whole = fill(expected, rows=64, stack=2, n_step=3)
    for name in ("frames", "transition", "terminated", "truncated", "age"):
        np.testing.assert_array_equal(cut._columns[name], whole._columns[name], name)


@pytest.mark.parametrize("replay", ["uniform", "prioritized"])
def test_in_longer_rings_what_was_not_brought_back_is_never_drawn(replay: str) -> None:
    """Also where it was saved there again: frames of the rows before are blank, and would stand in stacks."""
    stream = [Event(i + 1, 0, 0.0, False, False, i == 0, True) for i in range(30)]
    buffers = [LocalBuffers(ring_layout(1, rows, (2, 3), np.dtype(np.uint8))) for rows in (10, 50, 60)]
    option = typed(make_run(f"replay={replay}").replay, Replay)
    replays = short, longer, longest = [option.make(ReplayArguments(own, 3, 1, GAMMA, seed=0)) for own in buffers]
    for event in stream:
        append(short, [event])
    longer.load_state_dict(short.state_dict())
    longest.load_state_dict(longer.state_dict())
    for buffer in replays:
        observations = buffer.sample(2000).observations[:, ::2, 0].numpy()
        assert set(observations[:, -1].tolist()) == set(range(23, 30))  # rows 21 to 30 are held, and 30 has no next
        np.testing.assert_array_equal(np.diff(observations.astype(int)), 1)
