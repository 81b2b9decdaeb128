"""Reset pool: consoles that start games ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from atari_warp import ConsoleBatch, Preprocessing
from atari_warp.reset_pool import NOT_REPLACED, group_count, pool_size
from devices import DEVICES

ACTIONS = (0, 1, 3, 4)
ENVS = 6

Row = list[Any]  # observation and results of one environment


def results(batch: ConsoleBatch) -> list[np.ndarray]:
    """Newest frames and results of all environments."""
    newest = batch.observations[:, -1:].reshape(batch.num_envs, -1)
    parts = (batch.reward, batch.terminated, batch.truncated, batch.episode_start, batch.lives)
    return [newest.copy(), *parts]


def row(arrays: list[np.ndarray], k: int) -> Row:
    return [array[k] for array in arrays]


def play_by_console(batch: ConsoleBatch, steps: int) -> tuple[list[list[tuple[int, Row]]], int]:
    """Play, and return the actions and results of each console, for any environment, and the number of replacements."""
    batch.reset(range(ENVS))
    draws, console_of = np.random.default_rng(0), np.arange(ENVS + batch.reset_pool)
    logs: list[list[tuple[int, Row]]] = [[] for _ in console_of]
    for k in range(ENVS):
        logs[k].append((0, row(results(batch), k)))
    replaced = 0
    for _ in range(steps):
        actions = draws.integers(len(ACTIONS), size=ENVS).astype(np.int32)
        batch.step(actions)
        for env, ready in enumerate(batch._replacements.numpy() if batch.reset_pool else ()):
            if ready != NOT_REPLACED:
                console_of[[env, ready]] = console_of[[ready, env]]
                replaced += 1
        for env in range(ENVS):
            logs[console_of[env]].append((int(actions[env]), row(results(batch), env)))
    return logs, replaced


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("group_size", "game", "pool", "options"),
    [
        (2, "breakout", 3, {"use_fire_reset": True, "max_num_frames_per_episode": 650}),  # three groups
        (
            256,
            "breakout",
            1,
            {"episodic_life": True, "use_fire_reset": True, "max_num_frames_per_episode": 250, "stack_num": 2},
        ),
        (2, "breakout", 6, {"repeat_action_probability": 0.25, "noop_max": 0, "max_num_frames_per_episode": 300}),
        (256, "tetris", 6, {"max_num_frames_per_episode": 400, "frameskip": 3}),  # with frames that end early
    ],
)
def test_each_console_plays_as_without_a_pool_but_for_other_environments(
    device: str, game: str, pool: int, options: dict[str, Any], group_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atari_warp.reset_pool.GROUP_SIZE", group_size)
    preprocessing = Preprocessing(**options, actions=ACTIONS)
    batch = ConsoleBatch(game, ENVS, device, preprocessing, threads=2, reset_pool=pool)
    logs, replaced = play_by_console(batch, 400)
    alone = ConsoleBatch(game, len(logs), preprocessing=preprocessing)
    alone.reset(np.array([k if k < ENVS else 2**64 - 1 - (k - ENVS) for k in range(len(logs))], np.uint64))
    for step in range(max(map(len, logs))):
        if step:
            alone.step([log[step][0] if step < len(log) else 0 for log in logs])
        found = results(alone)
        for k, log in enumerate(logs):
            if step < len(log):
                for one, other in zip(log[step][1], row(found, k), strict=True):
                    np.testing.assert_array_equal(one, other, err_msg=f"console {k}, step {step}")
    assert replaced > 3


def test_threads_do_not_change_results() -> None:
    preprocessing = Preprocessing(actions=ACTIONS, max_num_frames_per_episode=150)
    (one_log, one_count), (three_log, three_count) = (
        play_by_console(ConsoleBatch("breakout", ENVS, preprocessing=preprocessing, threads=threads, reset_pool=3), 120)
        for threads in (1, 3)
    )
    assert one_count == three_count > 0
    for one, other in zip(one_log, three_log, strict=True):
        assert len(one) == len(other)
        for here, there in zip(one, other, strict=True):
            assert here[0] == there[0]
            np.testing.assert_array_equal(here[1][0], there[1][0])


def play(batch: ConsoleBatch, steps: int) -> list[list[np.ndarray]]:
    draws, found = np.random.default_rng(3), []
    for _ in range(steps):
        batch.step(draws.integers(len(ACTIONS), size=ENVS).astype(np.int32))
        found.append(results(batch))
    return found


@pytest.mark.parametrize("device", DEVICES)
def test_a_state_can_be_loaded_with_another_size_of_the_pool(device: str) -> None:
    def make(pool: int) -> ConsoleBatch:
        preprocessing = Preprocessing(actions=ACTIONS, max_num_frames_per_episode=150)
        return ConsoleBatch("breakout", ENVS, device, preprocessing, reset_pool=pool)

    batch = make(3)
    batch.reset(range(ENVS))
    play(batch, 60)
    state = batch.save_state()
    expected = play(batch, 100)

    def compare(other: ConsoleBatch, until: Callable[[list[list[np.ndarray]]], int]) -> None:
        other.load_state(state)
        found = play(other, 100)
        last = until(expected)
        assert last > 3
        for here, there in zip(found[:last], expected[:last], strict=True):
            for one, two in zip(here, there, strict=True):
                np.testing.assert_array_equal(one, two)
        assert sum(int(step[4].sum()) for step in found) > ENVS  # starts of games

    def first_start(steps: list[list[np.ndarray]]) -> int:
        return next(k for k, step in enumerate(steps) if step[4].any())

    compare(make(3), len)
    for pool in (0, 1, 6):  # the next game of an environment comes from another console then
        compare(make(pool), first_start)


def test_the_pool_has_at_most_one_console_an_environment() -> None:
    assert ConsoleBatch("pong", 2, reset_pool=7).reset_pool == 2


def test_by_default_the_pool_is_a_quarter_on_a_gpu_and_empty_on_a_cpu() -> None:
    assert ConsoleBatch("pong", 2).reset_pool == 0
    assert (pool_size(None, 9, True), pool_size(None, 9, False)) == (3, 0)


@pytest.mark.parametrize(
    ("envs", "pool", "groups"), [(6, 3, 1), (1024, 256, 4), (1024, 2, 2), (1024, 0, 1), (2**20, 2**18, 1024)]
)
def test_each_group_has_a_pool_console_and_enough_environments(envs: int, pool: int, groups: int) -> None:
    assert group_count(envs, pool) == groups
