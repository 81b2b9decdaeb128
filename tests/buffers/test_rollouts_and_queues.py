"""RolloutBuffer and streams against naive references that keep whole episodes in lists."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from conftest import make_toy
from hypothesis import given, settings
from hypothesis import strategies as st
from test_uniform import GAMMA, Event, append, as_arrays_or_tensors, lanes, naive

from dqnspeed.algorithms import make_buffer
from dqnspeed.buffers import (
    LocalBuffers,
    RolloutBatch,
    RolloutBuffer,
    Rows,
    TransitionQueue,
    lambda_returns,
    ring_layout,
)
from dqnspeed.buffers.rollout import Judge, vtrace
from dqnspeed.envs import describe
from dqnspeed.execution.arrays import Arrays
from dqnspeed.training.schedule import BufferSchedule, LearningStart, make_schedule

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


@given(lanes(), st.integers(0, 2**31))
def test_lambda_returns_are_those_of_the_forward_view(streams: list[list[Event]], seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(len(streams), len(streams[0]))).astype(np.float32)
    steps = len(streams[0]) - 1

    def column(name: str) -> np.ndarray:
        return np.array([[getattr(event, name) for event in stream[:steps]] for stream in streams])

    rewards = column("reward").astype(np.float32)
    got = lambda_returns(Arrays(None), rewards, values, column("terminated"), column("truncated"), GAMMA, LAM)
    for lane, stream in enumerate(streams):
        for row in range(steps):
            if stream[row].transition:
                expected = forward_view(stream, list(values[lane]), row, steps)
                assert got[lane, row] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def buffers(streams: list[list[Event]], rows: int, tensors: str | None) -> LocalBuffers:
    """With room for a few frames alone where these come as tensors, which are stored elsewhere."""
    frames = None if tensors is None else 3
    return LocalBuffers(ring_layout(len(streams), rows, (2, 3), np.dtype(np.uint8), acting=True, frames=frames))


def on(tensors: str | None) -> torch.device | None:
    return None if tensors is None else torch.device(tensors)


@as_arrays_or_tensors
@settings(max_examples=40, deadline=None)
@given(lanes(), st.integers(2, 9), st.integers(1, 3), st.integers(1, 3), st.integers(1, 20), st.booleans())
def test_every_epoch_of_a_rollout_gives_each_of_its_transitions_once(
    tensors: str | None, streams: list[list[Event]], steps: int, epochs: int, stack: int, batch_size: int, asked: bool
) -> None:
    """Bootstrapped from the next row, or from what was ``asked`` for before there was one."""
    rings = buffers(streams, steps + stack + 3, tensors)
    rollouts = RolloutBuffer(rings, stack, steps, epochs, GAMMA, LAM, device=on(tensors))
    batch_size, begin = min(batch_size, len(streams) * steps), 0
    if asked:
        rollouts.bootstrap = lambda: rollouts.cursors().astype(np.float32)
    for row, events in enumerate(zip(*streams, strict=True)):
        values, log_probs = np.full(len(streams), row), -np.array([e.number for e in events])
        append(rollouts, events, tensors=tensors, values=values, log_probs=log_probs)
        due = rollouts.due(batch_size)
        end = begin + steps
        complete = row == (end - 1 if asked else end)
        inside = (
            [(lane, r) for lane in range(len(streams)) for r in range(begin, end) if streams[lane][r].transition]
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
        numbers = {streams[lane][r].number: (lane, r) for lane, r in inside}
        for batch, size in zip(batches, sizes, strict=True):
            assert len(batch.actions) == batch_size
            count = int((batch.weights > 0).sum())
            assert count == size
            assert batch.weights[:count].numpy() == pytest.approx(1 / count) and not batch.weights[count:].any()
            for i, number in enumerate(batch.observations[:, -1, 0].tolist()):
                lane, r = numbers[number]
                assert batch.log_probs[i] == -number and batch.values[i] == r
                expected = forward_view(streams[lane], range(len(streams[lane]) + 1), r, end)
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


@pytest.mark.slow
@as_arrays_or_tensors
@settings(max_examples=100, deadline=None)
@given(lanes(), st.integers(1, 3), st.integers(1, 5), st.integers(1, 12), st.data())
def test_a_stream_gives_every_transition_once_and_in_order(
    tensors: str | None, streams: list[list[Event]], stack: int, n_step: int, batch_size: int, data: st.DataObject
) -> None:
    rings = buffers(streams, len(streams[0]) + 1, tensors)
    stream = TransitionQueue(rings, stack, n_step, GAMMA, ahead=2 * batch_size, device=on(tensors))
    schedule = BufferSchedule(stream, batch_size, agent_steps=0)
    expected: dict[tuple, float] = {}
    for events in streams:
        expected |= naive(events, len(streams[0]) + 1, stack, n_step)
    seen: list[tuple] = []
    for events in zip(*streams, strict=True):
        append(stream, events, tensors=tensors)
        if data.draw(st.booleans()):
            for _ in range(schedule.due(0, 0)):
                batch = stream.sample(batch_size)
                for i in range(batch_size):
                    before, after = (
                        tuple(s[i, ::2, 0].tolist()) for s in (batch.observations, batch.next_observations)
                    )
                    key = (before, int(batch.actions[i]), after, round(float(batch.discounts[i]), 5))
                    assert batch.rewards[i] == pytest.approx(expected[key], abs=1e-4)
                    seen.append(before)
            assert stream.due(batch_size) == 0
            assert stream.waiting() < batch_size + n_step * len(streams)  # else there was a batch
    assert len(set(seen)) == len(seen) == stream.taken
    for lane in range(len(streams)):
        newest = [s[-1] for s in seen if 80 * lane < s[-1] <= 80 * (lane + 1)]
        assert newest == sorted(newest)
    transitions = sum(event.transition for events in streams for event in events)
    assert stream.waiting() == transitions - stream.taken
    assert schedule.limit(0) == stream.taken + stream.capacity


def test_what_came_before_learning_started_is_discarded() -> None:
    no, yes = np.zeros(1, bool), np.ones(1, bool)
    layout = ring_layout(1, 64, (1,), np.dtype(np.float32), acting=True)
    for buffer in (
        TransitionQueue(LocalBuffers(layout), 1, 2, GAMMA, 8),
        RolloutBuffer(LocalBuffers(layout), 1, 4, 1, GAMMA, LAM),
    ):
        for i in range(20):
            if i == 10:
                buffer.discard_pending()
            buffer.append(
                Rows(np.full((1, 1), i, np.float32), np.zeros(1, int), np.zeros(1, np.float32), no, no, no, yes)
            )
        assert buffer.sample(4).observations.min() == 10


@pytest.mark.parametrize("algo", ["a3c", "ppo"])
def test_nothing_is_overwritten_before_it_is_learnt_from_even_by_an_actor_that_runs_alone(algo: str) -> None:
    actors = 3 if algo == "a3c" else 1
    run = make_toy(f"algo={algo}", "parallelism=process", "num_envs=2", f"parallelism.num_actors={actors}",
                   "algo.batch_size=16")  # fmt: skip
    spec = describe(run)
    buffer = make_buffer(run, spec)
    try:
        schedule = make_schedule(run, buffer, LearningStart(0, 0))
        steps = row = 0
        no, yes, numbers = np.zeros(2, bool), np.ones(2, bool), []
        while steps < schedule.limit(0):  # games of one step, whose every other row is a final frame
            ended, frame = row % 2 == 1, np.full((2, 3), row, np.float32)
            buffer.append(Rows(frame, np.zeros(2, int), np.zeros(2, np.float32), no if ended else yes, no,
                               no if ended else yes, no if ended else yes))  # fmt: skip
            steps, row = steps + 2 * (not ended), row + 1
        while due := schedule.due(0, 0):
            for _ in range(due):
                numbers += buffer.sample(16).observations[:, 0].tolist()
        assert min(numbers) == 0 and set(numbers) == set(range(0, int(max(numbers)) + 1, 2))
    finally:
        buffer.close()


@pytest.mark.parametrize("longer", [True, False])
def test_rings_of_another_length_take_over_what_is_still_to_be_read(longer: bool) -> None:
    def stream(rows: int) -> TransitionQueue:
        return TransitionQueue(
            LocalBuffers(ring_layout(1, rows, (1,), np.dtype(np.float32), acting=True)), 1, 1, GAMMA, 20
        )

    no, yes = np.zeros(1, bool), np.ones(1, bool)
    before, after = stream(40), stream(400 if longer else 30)
    for i in range(100):
        before.append(Rows(np.full((1, 1), i, np.float32), np.zeros(1, int), np.zeros(1, np.float32), no, no, no, yes))
        if i == 80:
            before.discard_pending()
    after.load_state_dict(before.state_dict())
    np.testing.assert_array_equal(after.sample(10).observations[:, 0], np.arange(81, 91))


def by_first_number(observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """A judge."""
    return torch.stack([observations[:, 0], -observations[:, 1].abs() - actions.to(observations.device)])


@pytest.mark.parametrize("judge", [None, by_first_number])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_a_rollout_that_is_held_on_a_device_gives_the_same_batches(device: str, judge: Judge | None) -> None:
    run = make_toy("algo=ppo", "num_envs=2", "algo.num_steps=8", "algo.batch_size=4", "algo.epochs=3")
    rng, spec = np.random.default_rng(0), describe(run)
    here, there = make_buffer(run, spec), make_buffer(run, spec, device=torch.device(device))
    assert isinstance(here, RolloutBuffer) and isinstance(there, RolloutBuffer)
    here.evaluate_actions = there.evaluate_actions = judge
    for step in range(18):
        ends = np.array([step % 5 == 4, False])
        rows = Rows(
            frames=rng.normal(size=(2, 3)).astype(np.float32), actions=rng.integers(3, size=2),
            rewards=rng.normal(size=2).astype(np.float32), terminated=ends, truncated=np.zeros(2, bool),
            first=np.array([step % 5 == 0, step == 0]), transition=np.ones(2, bool),
            acting={"log_probs": rng.normal(size=2), "values": rng.normal(size=2), "versions": np.full(2, step)},
        )  # fmt: skip
        for buffer in (here, there):
            buffer.append(rows)
    assert here.due(4) == there.due(4) == 12
    for _ in range(24):
        ours, theirs = here.sample(4), there.sample(4)
        assert ours.rollout == theirs.rollout
        for name in RolloutBatch.__slots__[:-1]:  # type: ignore[attr-defined]
            assert getattr(theirs, name).device.type == device
            # But for the exponential of V-trace, which libraries round differently, they are equal to the last bit.
            near = {"rtol": 1e-5, "atol": 1e-5} if judge else {"rtol": 0}
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name).cpu(), **near)
    blank = there.blank(4)
    assert [getattr(blank, n).shape for n in ("observations", "returns")] == [(4, 3), (4,)]


@as_arrays_or_tensors
def test_a_judge_is_shown_the_stack_and_the_action_of_every_row(tensors: str | None) -> None:
    """In lanes whose games end at different rows, round the ring."""
    lanes, steps = 3, 5
    rollouts = RolloutBuffer(
        LocalBuffers(ring_layout(lanes, 4 * steps + 9, (1,), np.dtype(np.float32), acting=True)), 2, steps, 1, GAMMA,
        LAM, device=on(tensors),
    )  # fmt: skip
    shown = list[tuple[list[float], list[int]]]()

    def judge(observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        shown.append((observations[:, 1].tolist(), actions.tolist()))
        return torch.stack([observations[:, 1], actions.float()])

    rollouts.evaluate_actions = judge
    lane, learnt = np.arange(lanes), 0
    for step in range(80):
        first, last = (step % 7 == lane) | (step == 0), (step % 7 == (lane - 1) % 7) & (step > 0)
        terminated = (step % 7 == (lane - 2) % 7) & (step > 1)
        frames, ones = (1000 * lane + step)[:, None].astype(np.float32), np.ones(lanes, np.float32)
        rollouts.append(Rows(frames, (lane + step) % 4, ones, terminated, ~ones.astype(bool), first, ~last))
        if due := rollouts.due(3):
            rows = rollouts._begin[0] + np.arange(steps + 1)
            for _ in range(due):
                batch = rollouts.sample(3)
                assert torch.equal(batch.values, batch.observations[:, 1])
            learnt += 1
            expected = [((1000 * i + rows).tolist(), ((i + rows) % 4).tolist()) for i in lane]
            assert shown == expected
            shown.clear()
    assert learnt == 15


@pytest.mark.parametrize("judged", [False, True])
def test_what_a_network_says_of_a_games_last_frame_is_not_seen_before_it(judged: bool) -> None:
    """Not a number, say."""

    def column(*of: float) -> np.ndarray:
        return np.array([of], np.float32)

    rewards, values = column(1, 2, 0, 3), column(0.5, 0.25, math.nan, 0.125, math.nan)
    terminated, truncated = column(0, 1, 0, 1).astype(bool), column(0, 0, 0, 0).astype(bool)
    found = lambda_returns(Arrays(None), rewards, values, terminated, truncated, GAMMA, LAM)
    if judged:
        log_ratios = column(0, 0, math.nan, 0)
        found, advantages = vtrace(Arrays(None), rewards, values, terminated, truncated, log_ratios, GAMMA, LAM)
        assert np.isfinite(advantages[0, [0, 1, 3]]).all()
    expected = 1 + GAMMA * ((1 - LAM) * 0.25 + LAM * 2)
    np.testing.assert_allclose(found[0, [0, 1, 3]], [expected, 2, 3], rtol=1e-6)


def test_a_blank_batch_looks_like_those_that_are_learnt_from() -> None:
    for algo in (["algo=dqn"], ["algo=a3c", "parallelism.num_actors=1"]):
        run = make_toy(*algo, "wrappers.stack=2", "algo.n_step=3")
        blank = make_buffer(run, describe(run)).blank(5)
        assert blank.observations.shape == blank.next_observations.shape == (5, 6)
        assert blank.observations.dtype == torch.float32 and blank.actions.shape == (5,)


@pytest.mark.parametrize("kind", ["stream", "rollouts"])
def test_only_what_is_still_to_be_learnt_from_is_saved_with_the_stacks_before_it(kind: str) -> None:
    def buffer() -> TransitionQueue | RolloutBuffer:
        rings = LocalBuffers(ring_layout(2, 300, (1,), np.dtype(np.float32), acting=True))
        return (
            TransitionQueue(rings, 3, 2, GAMMA, 50) if kind == "stream" else RolloutBuffer(rings, 3, 8, 1, GAMMA, LAM)
        )

    def play(into: TransitionQueue | RolloutBuffer, lane: int, steps: range) -> None:
        no, yes, one = np.zeros(1, bool), np.ones(1, bool), np.zeros(1, np.float32)
        for i in steps:
            frames, first = np.full((1, 1), 1000 * lane + i, np.float32), yes if i % 7 == 0 else no
            into.append(Rows(frames, one.astype(int), one + i, no, no, first, yes), lane)

    before, after = buffer(), buffer()
    play(before, 0, range(400))  # round the ring
    play(before, 1, range(390))
    assert before.state_dict()["columns"]["frames"].shape[1] == 300  # the background may still be measured on it
    before.discard_pending()
    play(before, 0, range(400, 415))
    play(before, 1, range(390, 412))
    for _ in range(before.due(8)):
        before.sample(8)
    saved = before.state_dict()
    assert saved["columns"]["frames"].shape[1] <= 22 + 4
    after.load_state_dict(saved)
    assert len(after.frames_of(0, 380, 415)) < len(before.frames_of(0, 380, 415)) == 35  # and nothing that is not there
    for both in (before, after):
        play(both, 0, range(415, 440))
        play(both, 1, range(412, 440))
    while before.due(8):
        ours, theirs = before.sample(8), after.sample(8)
        for name in ("observations", "actions", "versions" if kind == "stream" else "returns"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    assert after.due(8) == 0


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


@given(lanes(), st.integers(0, 2**31))
def test_vtrace_is_that_of_its_definition(streams: list[list[Event]], seed: int) -> None:
    rng, steps = np.random.default_rng(seed), len(streams[0]) - 1
    values = rng.normal(size=(len(streams), steps + 1)).astype(np.float32)
    log_ratios = rng.normal(size=(len(streams), steps)).astype(np.float32)

    def column(name: str) -> np.ndarray:
        return np.array([[getattr(event, name) for event in stream[:steps]] for stream in streams])

    rewards, ends = column("reward").astype(np.float32), (column("terminated"), column("truncated"))
    targets, advantages = vtrace(Arrays(None), rewards, values, *ends, log_ratios, GAMMA, LAM)
    ratios = np.exp(log_ratios)
    for lane, stream in enumerate(streams):
        for row in range(steps):
            if not stream[row].transition:
                continue
            expected = by_definition(stream, list(values[lane]), list(ratios[lane]), row, steps)
            assert targets[lane, row] == pytest.approx(expected, rel=1e-4, abs=1e-4)
            ended = stream[row].terminated or stream[row].truncated or row + 1 == steps
            nothing = 0 if stream[row].terminated else values[lane, row + 1]
            following = nothing if ended else targets[lane, row + 1]
            expected = stream[row].reward + GAMMA * following - values[lane, row]
            assert advantages[lane, row] == pytest.approx(expected, rel=1e-4, abs=1e-4)
    on_policy, _ = vtrace(Arrays(None), rewards, values, *ends, 0 * log_ratios, GAMMA, LAM)
    np.testing.assert_allclose(
        on_policy, lambda_returns(Arrays(None), rewards, values, *ends, GAMMA, LAM), rtol=1e-4, atol=1e-4
    )
