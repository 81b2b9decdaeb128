from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import make_run, make_toy
from hypothesis import given
from hypothesis import strategies as st

from dqnspeed.actors import Collected, NewGames
from dqnspeed.envs import Episode
from dqnspeed.system.signals import StopSignals
from dqnspeed.tracking.metrics import Moment, Returns, Speed
from dqnspeed.training.progress import Progress
from dqnspeed.training.schedule import (
    FreeSchedule,
    LearningStart,
    RatioSchedule,
    make_schedule,
    schedule_sentence,
)
from dqnspeed.training.stop_rule import StopRule
from dqnspeed.training.summary import summarize


@given(st.integers(1, 9), st.integers(1, 50), st.integers(1, 300))
def test_a_held_ratio_is_kept_whatever_the_steps_come_in(steps_per_update: int, starts: int, stride: int) -> None:
    schedule, updates = RatioSchedule(steps_per_update, LearningStart(starts, 0)), 0
    for steps in range(0, 900, stride):
        due = schedule.due(steps, updates)
        assert due >= 0
        updates += due
        expected = 0 if steps < starts else (steps - starts) // steps_per_update + 1
        assert updates == expected


def test_a_free_ratio_updates_without_end_once_there_is_something_to_learn() -> None:
    schedule = FreeSchedule(LearningStart(10, 0))
    assert [schedule.due(steps, updates) for steps, updates in ((9, 0), (10, 0), (10, 50))] == [0, 1, 1]


def test_the_schedule_follows_the_parallelism() -> None:
    start = LearningStart(100, 0)
    free = make_schedule(make_run("experiment=process"), None, start)
    assert isinstance(free, FreeSchedule) and free.limit(0) == math.inf
    held = make_schedule(make_run("parallelism=process", "parallelism.samples_per_step=8"), None, start)
    assert held.due(100 + 4 * 10, 0) == 11  # a batch of 32 at ratio 8 is paid for by 4 steps
    assert 100 <= held.limit(0) <= 120 and held.limit(10) == held.limit(0) + 40


def test_a_resumed_run_owes_no_updates_for_the_steps_that_fill_its_replay_anew() -> None:
    schedule = RatioSchedule(2, LearningStart(steps=5000, updates=700))
    assert [schedule.due(steps, 700) for steps in (4000, 4999, 5000, 5002)] == [0, 0, 1, 2]
    assert schedule.due(5002, 702) == 0


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            "",
            "an update per agent step (batch size 32); learning rate 0.0001; epsilon 1 to 0.02 from agent step 10,000",
        ),
        (
            "experiment=process",
            "as many updates as possible (batch size 128); learning rate 0.0001; epsilon 1 to 0.02 from",
        ),
        (
            "experiment=speedrun algo.epochs=3",
            "85.3333 agent steps (batch size 256); learning rate 0.001; entropy bonus 0.02 to 0.002",
        ),
        ("experiment=ladder/11_crop", "learning rate 0.001 to 0.0003 over 3,200 updates (409,600 agent steps)"),
        ("experiment=speedrun", "KL target 0.012 to 0.004 over 6,400 updates (819,200 agent steps)."),
        ("algo=q_learning", "Schedule: an update per agent step (batch size 1); epsilon 1."),
    ],
)
def test_one_sentence_says_what_the_schedules_come_to(overrides: str, expected: str) -> None:
    sentence = schedule_sentence(make_run(*overrides.split()))
    assert expected in sentence and sentence.startswith("Schedule: ") and "\n" not in sentence


@pytest.mark.parametrize("bound", ["null", "5"])
def test_an_infinite_return_solves_nothing(bound: str) -> None:
    run = make_toy(f"stop.reward_bound={bound}", "stop.window=2")
    progress, stop = Progress(run), StopRule(run.stop, StopSignals())
    games = [Episode(0, value, 7) for value in (1.0, math.inf)]
    list(progress.new_episodes(Collected(episodes=[NewGames(range(1)), *games])))
    assert not stop.is_met(progress) and progress.time_to_solve_avg_s is None
    assert not StopRule(replace(run.stop, on="eval"), StopSignals()).is_met(progress, eval_mean=math.inf)


@given(st.lists(st.lists(st.integers(1, 30), min_size=1), min_size=1, max_size=8), st.integers(0, 60), st.randoms())
def test_games_count_in_the_order_in_which_they_began(lengths: list[list[int]], steps: int, chance: Random) -> None:
    """A game counts if it began before the oldest game in progress; within one step, environments are in order."""
    returns, counted = Returns(window=1000), list[float]()
    returns.begin(range(len(lengths)))
    playing = [iter(each) for each in lengths]
    ends = {env: (0, next(games)) for env, games in enumerate(playing)}  # when the game began, and when it ends
    ended = list[tuple[int, int, float]]()
    for now in range(1, steps + 1):
        for env, (began, end) in sorted(ends.items()):
            if now == end:
                ended.append((began, env, chance.random()))
                returns.end(Episode(env, ended[-1][2], end - began))
                ends[env] = (now, now + next(playing[env], 10**6))
        if chance.random() < 0.1:
            saved, returns = returns.state_dict(), Returns(window=1000)
            returns.load_state_dict(saved)
        while returns.count_next():
            counted.append(returns.last[-1].episode_return)
    oldest = min((began, env) for env, (began, _) in ends.items())
    assert counted == [value for began, env, value in sorted(ended) if (began, env) < oldest]
    assert (returns.count, returns.ended) == (len(counted), len(ended))


def test_games_of_a_lost_actor_hold_up_no_others() -> None:
    returns = Returns(window=10)

    def played(*games: tuple[int, float]) -> list[float]:
        """The returns that count after these games, of an environment each, have ended."""
        for env, value in games:
            returns.end(Episode(env, value, 5))
        while returns.count_next():
            pass
        return [episode.episode_return for episode in returns.last]

    returns.begin(range(4))  # two environments of each of two actors
    assert played((1, 1.0), (3, 3.0), (0, 0.0), (1, 10.0)) == [0.0, 1.0], "the first of environment 2 goes on"
    returns.leave(range(2, 4))
    assert played((0, 20.0)) == [0.0, 1.0, 10.0, 20.0]
    returns.begin(range(2, 4))
    assert played((2, 4.0), (3, 5.0), (1, 30.0), (0, 40.0))[4:] == [30.0, 40.0, 4.0, 5.0]


def test_speed_is_that_of_the_last_seconds() -> None:
    """The slow-down when learning starts shows at once, not averaged over the run."""
    speed = Speed(frame_skip=4)
    for second in range(1, 101):
        metrics = speed.metrics(Moment(second, 1000 * second, 0, 0))
    for second in range(1, 21):
        metrics = speed.metrics(Moment(100 + second, 100_000 + 50 * second, 50 * second, 1600 * second))
    assert metrics["perf/steps_per_second"] == 50
    assert metrics["perf/frames_per_second"] == 200
    assert (metrics["perf/updates_per_second"], metrics["perf/samples_per_step"]) == (50, 32)


def test_the_moment_of_the_exponential_mean_is_kept_and_ends_nothing() -> None:
    """0.98 of a mean of 5 and 0.02 of a game of 100 are 6.9, and with another game of 100 they are 8.8."""
    run = make_toy("stop.reward_bound=8", "stop.window=100")
    progress, stop = Progress(run), StopRule(run.stop, StopSignals())

    def play(progress: Progress, *events: Any) -> None:
        list(progress.new_episodes(Collected(episodes=[*events])))

    progress.clock.set(10.0)
    play(progress, NewGames(range(1)), Episode(0, 5, 7), Episode(0, 100, 7))
    assert progress.time_to_solve_avg_s is None
    play(progress, Episode(0, 100, 7))
    assert progress.time_to_solve_avg_s == 10.0
    assert not stop.is_met(progress) and progress.time_to_solve_s is None
    resumed = Progress(run)
    resumed.load_state_dict(progress.state_dict(), updates=0)
    resumed.clock.set(20.0)
    play(resumed, Episode(0, 100, 7))
    assert resumed.time_to_solve_avg_s == 10.0


def test_a_run_beside_busy_processes_is_no_benchmark_after_a_resume_either() -> None:
    progress, resumed = Progress(make_toy()), Progress(make_toy())
    progress.warn_busy("others are at work.")
    resumed.load_state_dict(progress.state_dict(), updates=0)
    parts = {"evaluator": SimpleNamespace(mean=None, count=0), "stop": SimpleNamespace(reason="max_steps")}
    run: Any = SimpleNamespace(
        config=make_toy(), label="toy", progress=resumed, device=torch.device("cpu"), updates=0, **parts
    )
    ended = summarize(run, None)
    assert ended["busy"] and not ended["benchmark"]
