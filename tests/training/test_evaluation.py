"""Evaluations: their own games and seeds, no part of the training clock, and a stop rule."""

from __future__ import annotations

import contextlib
import csv
import json
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_run, make_toy, train_in

from dqnspeed.algorithms import make_network
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import describe, make_vector_env
from dqnspeed.networks.base import Network
from dqnspeed.system.signals import StopSignals
from dqnspeed.training.evaluation import Evaluator, copies, distinct, evaluation_metrics, play_games, with_starts
from dqnspeed.training.progress import Progress
from dqnspeed.training.stop_rule import StopRule


@contextlib.contextmanager
def evaluating(run: RunConfig, network: Network | None = None) -> Iterator[Evaluator]:
    spec = describe(run)
    with contextlib.closing(Evaluator(run, spec, network or make_network(run, spec), torch.device("cpu"))) as evaluator:
        yield evaluator


@pytest.mark.parametrize("kind", ["serial", "process parallelism.samples_per_step=16"])
def test_evaluations_reach_the_metrics_and_the_summary(kind: str, tmp_path: Path) -> None:
    # A report has the metrics of the newest evaluation; reports this frequent have the metrics of each.
    often = ["eval.every_steps=200", "eval.episodes=3", "stop.max_steps=600", "tracking.report_every_s=0.0001"]
    run = make_toy(*f"parallelism={kind}".split(), *often)
    summary = train_in(tmp_path, run)
    reports = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    evaluated = [r for r in reports if "eval/return_mean" in r]
    assert len(evaluated) >= 2 and all(report["eval/length_mean"] == 7 for report in evaluated)
    assert summary["eval_return_mean"] == pytest.approx(evaluated[-1]["eval/return_mean"], abs=1e-3)


def test_training_goes_on_as_if_it_had_not_been_evaluated(tmp_path: Path) -> None:
    outcomes = []
    for name, overrides in (("with", ["eval.every_steps=100", "eval.episodes=2"]), ("without", [])):
        (tmp_path / name).mkdir()
        run = make_toy("num_envs=2", "stop.max_steps=500", *overrides)
        train_in(tmp_path / name, run)
        with (tmp_path / name / "episodes.csv").open() as file:
            outcomes.append([(row["return"], row["agent_step"]) for row in csv.DictReader(file)])
    assert outcomes[0] == outcomes[1] and outcomes[0]


def test_time_limits_hold_for_training_and_evaluations_together() -> None:
    run = make_toy("stop.max_minutes=1")
    progress, stop = Progress(run), StopRule(run.stop, StopSignals())
    progress.clock.set(8.0)
    progress.eval_clock.set(51.9)
    assert not stop.is_met(progress) and not stop.cuts_short(progress)
    progress.eval_clock.set(52.0)
    assert stop.cuts_short(progress) and stop.is_met(progress) and stop.reason == "max_minutes"
    resumed = Progress(run)
    resumed.load_state_dict(progress.state_dict(), updates=0)
    assert (resumed.clock.now(), resumed.wall_time_s) == (8.0, 60.0)


def test_an_evaluation_that_outlasts_the_time_limit_is_given_up_and_counts_in_the_wall_clock(tmp_path: Path) -> None:
    many = ["eval.every_steps=1", "eval.episodes=1000000000", "stop.on=eval", "stop.max_minutes=0.01"]
    run = make_toy(*many, "env.id=toy_envs:Counter-v0")
    summary = train_in(tmp_path, run)
    assert summary["stopped_by"] == "max_minutes" and summary["evaluations"] == 0
    assert summary["eval_time_s"] > 0 and summary["wall_time_s"] >= 0.6
    last = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    training = summary["wall_time_s"] - summary["eval_time_s"]
    assert last["time"] == pytest.approx(training, abs=0.01)
    assert last["time/evaluating"] == pytest.approx(summary["eval_time_s"], abs=0.01)


def test_the_evaluations_mean_can_stop_a_run(tmp_path: Path) -> None:
    run = make_toy(
        "eval.every_steps=300", "eval.episodes=2", "stop.on=eval", "stop.reward_bound=28", "stop.max_steps=5000"
    )
    summary = train_in(tmp_path, run)
    assert summary["solved"] and summary["agent_steps"] == 300 and summary["eval_return_mean"] >= 28


def test_games_are_shared_out_so_that_short_ones_count_no_more_than_long_ones() -> None:
    run = make_toy("num_envs=3")
    env = make_vector_env(run)
    spec = describe(run)
    seen = list[int]()
    games = list(
        play_games(env, spec, lambda observations: np.zeros(len(observations), np.int64), [1, 2, 3], games=7,
                   watch=lambda observations, actions, step: seen.append(len(actions)))
    )  # fmt: skip
    env.close()
    assert sorted(game.env for game in games) == [0, 0, 0, 1, 1, 2, 2]
    assert all(game.episode_return == 28 and game.length == 7 for game in games) and set(seen) == {3}


def test_greedy_games_are_no_copies_and_it_is_reported_where_they_are() -> None:
    run = make_run("backend=ale", "wrappers.noop_max=0", "env.max_episode_frames=200", "num_envs=2")
    spec = describe(run)
    greedy = lambda frames: frames[:, -1].sum(axis=(1, 2), dtype=np.int64) % spec.num_actions  # noqa: E731
    different = []
    for noop_max in (run.eval.noop_max, 0):
        env = make_vector_env(with_starts(run, noop_max))
        games = list(play_games(env, spec, greedy, [1, 2], games=6))
        env.close()
        different.append(distinct(games))
        assert bool(copies(games)) == (noop_max == 0)
    assert different == [6, 1] and copies(games).startswith("Only 1 of 6 games differ")


def test_an_evaluation_of_copies_is_reported_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    run = make_toy("eval.every_steps=1", "eval.episodes=3")
    network = make_network(run, describe(run))
    for parameter in network.parameters():
        parameter.data.zero_()  # the first action, whatever is seen
    with evaluating(run, network) as evaluator:
        metrics = [evaluation_metrics(evaluator.play(step, lambda: False)) for step in (1, 2)]
    assert [m["eval/distinct_games"] for m in metrics] == [1, 1]
    assert [r.getMessage().startswith("evaluation 1: Only 1 of 3 games differ") for r in caplog.records] == [True]


def test_an_endless_evaluation_does_not_count(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other games are the short ones: here of two steps, which return 1 where the mean is 0."""
    monkeypatch.setattr("dqnspeed.training.evaluation.MAX_IDLE_STEPS", 20)
    run = make_toy("env.id=toy_envs:Coin-v0", "eval.every_steps=1", "eval.episodes=8")
    with evaluating(run) as evaluator:
        assert evaluator.play(1, lambda: False) == [] and evaluator.mean is None and not evaluator.is_due(1)
    assert caplog.records[0].getMessage().startswith("an evaluation was ended and does not count: no game ended within")


@pytest.mark.parametrize("algo", ["q_learning", "dqn device=cpu"])
def test_a_table_of_actions_plays_the_games_that_the_network_plays_step_by_step(algo: str) -> None:
    """A tiny epsilon makes actions random in principle, so that no table is made."""
    played = []
    for epsilon in (0, 1e-9):
        run = make_run("experiment=q_learning", *f"algo={algo}".split(), "eval.every_steps=1", "eval.episodes=20",
                       f"eval.epsilon={epsilon}")  # fmt: skip
        torch.manual_seed(1)
        network = make_network(run, describe(run))
        if algo == "q_learning":
            network.values.copy_(torch.rand(network.values.shape))
        with evaluating(run, network) as evaluator:
            games = [evaluator.play(step, lambda: False) for step in (1, 2)]
        played.append([(sorted((g.env, g.episode_return, g.length) for g in one), distinct(one)) for one in games])
    assert played[0] == played[1] and [len(games) for games, _ in played[0]] == [20, 20]
    assert played[0][0] != played[0][1], "each evaluation has its own seeds"


@pytest.mark.parametrize(("longest", "played"), [(10, 6), (9, 0)])
def test_a_table_leaves_a_game_that_does_not_end(longest: int, played: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dqnspeed.training.evaluation.MAX_IDLE_STEPS", longest)
    numbered = "env.id=toy_envs:Anything-v0", "+env.kwargs.kind=shifted", "env.reward_bound=null"  # games of 10 steps
    run = make_run("experiment=q_learning", *numbered, "eval.episodes=6")
    with evaluating(run) as evaluator:
        games = evaluator.play(1, lambda: False)
        assert [(game.episode_return, game.length) for game in games] == [(10.0, 10)] * played
        assert evaluator.play(1, lambda: True) == []


@pytest.mark.parametrize("algo", ["ppo", "sac_discrete"])
def test_an_evaluation_draws_actions_where_asked(algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A game's return is 28 and 10 times the sum of its 7 actions, whose mean is 0.4 if they are drawn."""
    for deterministic, mean_action in ((True, 0.0), (False, 0.4)):
        given = [f"eval.deterministic={deterministic}", "execution.numpy_acting=false"]
        run = make_toy(f"algo={algo}", "eval.every_steps=1", "eval.episodes=300", *given)
        network, logits = make_network(run, describe(run)), torch.log(torch.tensor([0.7, 0.2, 0.1]))
        monkeypatch.setattr(network, "forward", lambda seen: logits.expand(len(seen), -1))  # noqa: B023
        monkeypatch.setattr(network, "policy_and_value", lambda seen: (network(seen), torch.zeros(len(seen))))  # noqa: B023
        with evaluating(run, network) as evaluator:
            returns = [game.episode_return for game in evaluator.play(1, lambda: False)]
        assert (np.mean(returns) - 28) / 70 == pytest.approx(mean_action, abs=0.06)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ([], r"^eval\.deterministic=false: algo=dqn learns action values and no policy to draw from; "),
        (["algo=ppo", "eval.epsilon=0.1"], r"^eval\.epsilon=0\.1: does not go with eval\.deterministic=false"),
    ],
)
def test_only_a_policy_can_be_drawn_from(overrides: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        make_toy("eval.deterministic=false", *overrides)


def test_another_number_of_steps_between_evaluations_counts_from_the_last_one() -> None:
    for every, due in ((1000, 2200), (50, 1250), (5000, 6200)):
        before, after = (make_toy(f"eval.every_steps={steps}", "eval.episodes=1") for steps in (1000, every))
        with evaluating(before) as begun, evaluating(after) as resumed:
            begun.play(1200, lambda: False)
            resumed.load_state_dict(begun.state_dict())
            assert resumed.is_due(due) and not resumed.is_due(due - 1)


def test_an_evaluation_leaves_the_global_generators_as_they_were() -> None:
    with evaluating(make_toy("env.id=toy_envs:Dice-v0", "eval.every_steps=1", "eval.episodes=2")) as evaluator:
        random.seed(1)
        assert len(evaluator.play(1, lambda: False)) == 2
    assert random.random() == random.Random(1).random()
