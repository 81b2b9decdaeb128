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
    StopRule,
    make_schedule,
    schedule_sentence,
)
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
        ("", "an update of 32 for every agent step; learning rate 0.0001; epsilon 1 to 0.02 from agent step 10,000 to"),
        ("experiment=process", "updates of 128 as fast as they go; learning rate 0.0001; epsilon 1 to 0.02 from agent"),
        (
            "experiment=speedrun",
            "of 256 for every 128 agent steps; learning rate 0.001; entropy bonus 0.02 to 0.002 over 6,400 ",
        ),
        (
            "experiment=speedrun algo.epochs=3",
            "for every 85.3333 agent steps; learning rate 0.001; entropy bonus 0.02 to 0.002 over 9,600 ",
        ),
        (
            "experiment=ladder/11_crop",
            "; learning rate 0.001 to 0.0003 over 3,200 updates (409,600 agent steps); entropy",
        ),
        (
            "experiment=speedrun",
            "; target of the KL divergence 0.012 to 0.004 over 6,400 updates (819,200 agent steps).",
        ),
        ("algo=a2c", "an update of 240 for every 240 agent steps; learning rate 0.001; entropy bonus 0.01."),
        ("algo=q_learning", "Schedule: an update of 1 for every agent step; epsilon 1."),
    ],
)
def test_one_sentence_says_what_the_schedules_come_to(overrides: str, expected: str) -> None:
    sentence = schedule_sentence(make_run(*overrides.split()))
    assert expected in sentence and sentence.startswith("Schedule: ") and "\n" not in sentence


def test_returns_forget_what_is_older_than_the_window() -> None:
    returns = Returns(window=3)
    returns.begin([0])
    for value in (10.0, 1.0, 2.0, 3.0):
        returns.end(Episode(0, value, 5))
        assert returns.count_next() and not returns.count_next()
    assert (returns.mean, returns.count, returns.full) == (2.0, 4, True)


@pytest.mark.parametrize("bound", ["null", "5"])
def test_an_infinite_return_solves_nothing(bound: str) -> None:
    run = make_toy(f"stop.reward_bound={bound}", "stop.window=2")
    progress, stop = Progress(run), StopRule(run.stop, StopSignals())
    games = [Episode(0, value, 7) for value in (1.0, math.inf)]
    list(progress.new_episodes(Collected(episodes=[NewGames(range(1)), *games])))
    assert not stop.holds(progress) and progress.time_to_solve_avg_s is None
    assert not StopRule(replace(run.stop, on="eval"), StopSignals()).holds(progress, eval_mean=math.inf)


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


def test_what_an_actor_that_is_lost_was_playing_holds_up_nobody() -> None:
    """Its games that ended meanwhile are the short ones of their time, and leave with the one that went on."""
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
    assert played() == [0.0, 1.0, 10.0] and played((0, 20.0)) == [0.0, 1.0, 10.0, 20.0]
    returns.begin(range(2, 4))
    assert played((2, 4.0), (3, 5.0))[4:] == [], "those of another actor began before theirs"
    assert played((1, 30.0), (0, 40.0))[4:] == [30.0, 40.0, 4.0, 5.0]


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


def test_rates_are_of_the_steps_that_their_updates_are_due_for() -> None:
    """RolloutBuffer of 128 steps and 16 updates of 32, one a second, of which the last is left unfinished."""
    progress = Progress(make_toy())

    def collect(steps: int) -> None:
        progress.clock.set(progress.clock.now() + steps / 128)
        progress.add(Collected(agent_steps=steps))

    def reported() -> dict[str, float]:
        return progress.metrics({"train/loss": 1.0}, updates)

    for updates in range(0, 65, 16):
        if updates:
            progress.learnt(updates, 32 * updates)
            assert progress.speed_while_learning(updates)["perf/samples_per_step"] == 4
            assert reported()["perf/samples_per_step"] == 4
        collect(100)
        assert reported()["perf/samples_per_step"] == (4 if updates else 0)
        collect(28)
    speeds = progress.speed_while_learning(updates)
    assert (speeds["perf/steps_per_second"], speeds["perf/updates_per_second"]) == (128, 16)

    resumed = Progress(make_toy())
    resumed.load_state_dict(progress.state_dict(), updates)
    resumed.add(Collected(agent_steps=1000))  # the replay is filled again
    resumed.learnt(updates + 1, 32)
    resumed.add(Collected(agent_steps=64))
    resumed.learnt(updates + 17, 17 * 32)
    assert resumed.speed_while_learning(updates + 17)["perf/samples_per_step"] == 8


def test_the_moment_of_the_exponential_mean_is_kept_and_ends_nothing() -> None:
    """0.98 of a mean of 5 and 0.02 of a game of 100 are 6.9, and with another game of 100 they are 8.8."""

    def play(progress: Progress, *returns: float) -> None:
        games = [Episode(0, value, 7) for value in returns]
        list(progress.new_episodes(Collected(episodes=[*games])))

    run = make_toy("stop.reward_bound=8", "stop.window=100")
    begin = Collected(episodes=[NewGames(range(1))])
    progress, stop = Progress(run), StopRule(run.stop, StopSignals())
    list(progress.new_episodes(begin))
    progress.clock.set(10.0)
    play(progress, 5, 100)
    assert progress.time_to_solve_avg_s is None
    play(progress, 100)
    assert progress.time_to_solve_avg_s == 10.0
    assert not stop.holds(progress) and progress.time_to_solve_s is None
    resumed = Progress(run)
    resumed.load_state_dict(progress.state_dict(), updates=0)
    resumed.clock.set(20.0)
    play(resumed, 100)
    assert resumed.time_to_solve_avg_s == 10.0

    progress.warn_busy("others are at work.")
    resumed = Progress(run)
    resumed.load_state_dict(progress.state_dict(), updates=0)
    assert resumed.busy == "others are at work.", "it ran beside them for a while"
    parts = {"evaluator": SimpleNamespace(mean=None, count=0), "stop": SimpleNamespace(reason="max_steps")}
    whole: Any = SimpleNamespace(
        config=run, label="toy", progress=resumed, device=torch.device("cpu"), updates=0, **parts
    )
    ended = summarize(whole, None)
    assert ended["busy"] and not ended["benchmark"], "no measure of this machine"

    lucky, without = Progress(run), Progress(make_toy())
    for new in (lucky, without):
        list(new.new_episodes(begin))
    play(lucky, 8)
    play(without, 8)
    assert (lucky.time_to_solve_avg_s, without.time_to_solve_avg_s) == (0.0, None)
