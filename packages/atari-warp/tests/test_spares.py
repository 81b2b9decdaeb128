"""Games whose start was played ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from atari_warp import EmulatorError, Games, Preprocessing
from atari_warp.spares import groups_of, spares_of
from devices import DEVICES

ACTIONS = (0, 1, 3, 4)
ENVS = 6


def seen(games: Games) -> list[np.ndarray]:
    """What agents are given, a row for each."""
    newest = games.observations.numpy()[:, -1:].reshape(games.num_envs, -1)
    parts = (games.reward, games.terminated, games.truncated, games.starts, games.lives)
    return [newest.copy(), *(part.numpy().copy() for part in parts)]


def rows(what: list[np.ndarray], k: int) -> list[Any]:
    return [part[k] for part in what]


def of_each_console(games: Games, steps: int) -> tuple[list[list[tuple[int, list[Any]]]], int]:
    """The actions that each console was given and what came of them, with whichever agent; and how often an agent was
    given another console."""
    games.begin(range(ENVS))
    draws, at = np.random.default_rng(0), np.arange(ENVS + games.spares)
    logs: list[list[tuple[int, list[Any]]]] = [[] for _ in at]
    for k in range(ENVS):
        logs[k].append((0, rows(seen(games), k)))
    taken = 0
    for _ in range(steps):
        actions = draws.integers(len(ACTIONS), size=ENVS).astype(np.int32)
        games.act(actions)
        for env, spare in enumerate(games._takes.numpy() if games.spares else ()):
            if spare >= 0:
                at[[env, spare]] = at[[spare, env]]
                taken += 1
        for env in range(ENVS):
            logs[at[env]].append((int(actions[env]), rows(seen(games), env)))
    return logs, taken


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("together", [256, 2])  # one group, and three
@pytest.mark.parametrize(
    ("game", "spares", "stages"),
    [
        ("breakout", 3, {"fire": True, "max_episode_frames": 650}),
        ("breakout", 1, {"episodic_life": True, "fire": True, "max_episode_frames": 250, "stack": 2}),
        ("breakout", 6, {"sticky_actions": 0.25, "noop_max": 0, "max_episode_frames": 300}),
        ("qbert", 2, {"max_episode_frames": 500}),
        ("tetris", 6, {"max_episode_frames": 400, "frame_skip": 3}),  # some of whose frames end early
    ],
)
def test_each_console_plays_as_without_spares_though_for_other_agents(
    device: str, game: str, spares: int, stages: dict[str, Any], together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atari_warp.spares.TOGETHER", together)
    preprocessing = Preprocessing(**stages, actions=ACTIONS)
    logs, taken = of_each_console(Games(game, ENVS, device, preprocessing, threads=2, spares=spares), 400)
    alone = Games(game, len(logs), preprocessing=preprocessing)
    alone.begin(np.array([k if k < ENVS else 2**64 - 1 - (k - ENVS) for k in range(len(logs))], np.uint64))
    for step in range(max(map(len, logs))):
        if step:
            alone.act([log[step][0] if step < len(log) else 0 for log in logs])
        here = seen(alone)
        for k, log in enumerate(logs):
            if step < len(log):
                for one, other in zip(log[step][1], rows(here, k), strict=True):
                    np.testing.assert_array_equal(one, other, err_msg=f"console {k}, step {step}")
    assert taken > 3


def test_threads_change_nothing() -> None:
    preprocessing = Preprocessing(actions=ACTIONS, max_episode_frames=150)
    alone, together = (
        of_each_console(Games("breakout", ENVS, preprocessing=preprocessing, threads=number, spares=3), 120)
        for number in (1, 3)
    )
    assert alone[1] == together[1] > 0
    for one, other in zip(alone[0], together[0], strict=True):
        assert len(one) == len(other)
        for here, there in zip(one, other, strict=True):
            assert here[0] == there[0]
            np.testing.assert_array_equal(here[1][0], there[1][0])


def played(games: Games, steps: int) -> list[list[np.ndarray]]:
    draws, found = np.random.default_rng(3), []
    for _ in range(steps):
        games.act(draws.integers(len(ACTIONS), size=ENVS).astype(np.int32))
        found.append(seen(games))
    return found


@pytest.mark.parametrize("device", DEVICES)
def test_a_state_goes_on_with_its_spares_and_with_more_or_none(device: str) -> None:
    def made(spares: int) -> Games:
        return Games("breakout", ENVS, device, Preprocessing(actions=ACTIONS, max_episode_frames=150), spares=spares)

    games = made(3)
    games.begin(range(ENVS))
    played(games, 60)
    state = games.save_state()
    wanted = played(games, 100)

    def compare(other: Games, until: Callable[[list[list[np.ndarray]]], int]) -> None:
        other.load_state(state)
        found = played(other, 100)
        last = until(wanted)
        assert last > 3
        for here, there in zip(found[:last], wanted[:last], strict=True):
            for one, two in zip(here, there, strict=True):
                np.testing.assert_array_equal(one, two)
        assert sum(int(step[4].sum()) for step in found) > ENVS  # games that start

    def first_start(steps: list[list[np.ndarray]]) -> int:
        return next(k for k, step in enumerate(steps) if step[4].any())

    compare(made(3), len)
    for spares in (0, 1, 6):  # an agent's next game is another console's
        compare(made(spares), first_start)


@pytest.mark.parametrize("spares", [-1, 1.5])
def test_what_is_no_number_of_spares_is_refused(spares: Any) -> None:
    with pytest.raises(EmulatorError, match=rf"^spares={spares}: takes a whole number, at least 0\.$"):
        Games("pong", ENVS, spares=spares)


def test_there_is_a_spare_for_each_game_at_most_and_usually_none_on_a_cpu() -> None:
    assert Games("pong", 2, spares=7).spares == 2 and Games("pong", 2).spares == 0
    assert (spares_of(None, 9, True), spares_of(None, 9, False), spares_of(np.int64(4), 9, True)) == (3, 0, 4)  # type: ignore[arg-type]
    assert [groups_of(*of) for of in ((6, 3), (1024, 256), (1024, 2), (1024, 0), (2**20, 2**18))] == [1, 4, 2, 1, 1024]
