"""Streams of rows whose transitions are known, and ways to write them into buffers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from dqnspeed.buffers import (
    Batch,
    Buffer,
    DeviceStorage,
    HostStorage,
    ReplayBuffer,
    RingBuffer,
    Rows,
    SharedStorage,
    UniformSampler,
    ring_layout,
)
from dqnspeed.buffers.prioritized import PrioritizedReplay, PrioritizedSampler
from dqnspeed.execution.arrays import host

GAMMA = 0.9
PRIORITIES = {"alpha": 0.6, "beta": 0.4, "beta_final": 1.0, "beta_updates": 9, "priority_eps": 1e-6}


@dataclass
class Event:
    """One row of one environment: the frame ``number``, and the result of the action on it."""

    number: int  # unique, and the content of the frame
    action: int = 0
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    first: bool = False
    transition: bool = True


@st.composite
def event_streams(draw: st.DrawFn) -> list[list[Event]]:
    """Equally long streams of rows with episodes of random lengths that terminate or are truncated."""
    length, count = draw(st.integers(8, 40)), draw(st.integers(1, 3))
    streams, drawn = [], random.Random(draw(st.integers(0, 2**32)))  # of numbers that no end of an episode depends on
    for env in range(count):
        stream: list[Event] = []
        while len(stream) < length:
            steps = draw(st.integers(0, 9))
            truncated = draw(st.booleans())
            for i in range(steps + 1):
                last = i == steps
                at_end = i == steps - 1
                stream.append(
                    Event(
                        number=1 + 80 * env + len(stream),
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


def one_episode(count: int) -> list[Event]:
    """Rows of one long episode, whose frames are numbered from 1."""
    return [Event(i + 1, i % 3, float(i % 5), first=i == 0) for i in range(count)]


def short_episodes(count: int) -> list[Event]:
    """Rows of episodes of 8 steps that terminate."""
    return [Event(i + 1, i % 3, 1.0, i % 9 == 7, False, i % 9 == 0, i % 9 != 8) for i in range(count)]


def storage_of(
    num_envs: int,
    num_rows: int,
    stack: int = 1,
    n_step: int = 1,
    kind: type[HostStorage | SharedStorage] = HostStorage,
    device: torch.device | None = None,
    acting: bool = False,
    num_frames: int | None = None,
) -> DeviceStorage:
    """Empty rings of frames ``(2, 3)``, as an algorithm makes them."""
    layout = ring_layout(num_envs, num_rows, (2, 3), np.dtype(np.uint8), acting, num_frames)
    return DeviceStorage(kind(layout), stack, n_step, device, copies=kind is SharedStorage)


def uniform(storage: DeviceStorage, compiles: bool = False) -> ReplayBuffer:
    return ReplayBuffer(storage, UniformSampler(storage, 1), GAMMA, compiles)


def prioritized(storage: DeviceStorage, compiles: bool = False, **options: Any) -> ReplayBuffer:
    chosen = PrioritizedReplay(name="prioritized", buffer_size=1, device="auto", **PRIORITIES | options)  # type: ignore[arg-type]
    return ReplayBuffer(storage, PrioritizedSampler(storage, 1, chosen), GAMMA, compiles)


def append(
    buffer: Buffer | RingBuffer,
    events: Sequence[Event],
    env_index: int = 0,
    tensors: str | None = None,
    **acting: np.ndarray,
) -> None:
    """Write one step of environments; ``tensors``: the device of rows that come as tensors, else they are arrays."""
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
    if tensors is not None:
        rows = rows.map(lambda column: torch.as_tensor(column).to(tensors))
    (buffer if isinstance(buffer, RingBuffer) else buffer.storage).append(rows, env_index)


def fill(buffer: Any, streams: list[list[Event]], tensors: str | None = None) -> Any:
    """Write whole streams, and give the buffer back."""
    for events in zip(*streams, strict=True):
        append(buffer, events, tensors=tensors)
    return buffer


as_arrays_or_tensors = pytest.mark.parametrize("tensors", [None, "cpu"], ids=["arrays", "tensors"])


def naive(stream: list[Event], num_rows: int, stack: int, n_step: int) -> dict[tuple, float]:
    """Every transition that a ring of ``num_rows`` can still give, as of :func:`key`, and the sum of its rewards."""
    oldest = max(0, len(stream) - num_rows)
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
        # Rows of a ring that went round are not drawn if a frame of their stack might be gone.
        if before is None or (oldest and start < oldest + stack - 1):
            continue
        discount = 0.0 if terminated else GAMMA ** (at - start)
        expected[(before, stream[start].action, frames(at), round(discount, 5))] = total
    return expected


def naive_of_all(streams: list[list[Event]], num_rows: int, stack: int, n_step: int) -> dict[tuple, float]:
    """:func:`naive` of all streams together."""
    return {key: total for stream in streams for key, total in naive(stream, num_rows, stack, n_step).items()}


def keys(batch: Batch) -> list[tuple]:
    """Frames, action, next frames and discount of each transition, which tell it from others."""
    before, after = (map(tuple, of[:, ::2, 0].tolist()) for of in (batch.observations, batch.next_observations))
    discounts = (round(discount, 5) for discount in batch.discounts.tolist())
    return list(zip(before, batch.actions.tolist(), after, discounts, strict=True))


def learn(batch: Batch, errors: np.ndarray) -> None:
    """Tell a sampler that has priorities the errors of a batch."""
    if batch.update_priorities is not None:
        batch.update_priorities(torch.from_numpy(errors.astype(np.float32)).to(batch.rewards.device))


def priorities(replay: ReplayBuffer) -> np.ndarray:
    """Priorities to the power of alpha, ``(num_envs, num_rows)``."""
    replay.storage.receive()
    return host(replay.sampler.priorities).reshape(replay.storage.num_envs, -1).copy()  # type: ignore[attr-defined]


def assert_equal(one: Batch, other: Batch) -> None:
    for name in ("observations", "actions", "rewards", "next_observations", "discounts"):
        np.testing.assert_array_equal(getattr(one, name).cpu(), getattr(other, name).cpu(), name)
