"""Pieces of the bench: equal work, kinds of changes, and the work that each piece counts."""

from __future__ import annotations

import contextlib
import pickle
import time
from collections.abc import Mapping
from typing import Any

import pytest
from conftest import TESTS, TOY
from plans import pong, toy

from dqnspeed.bench import workloads
from dqnspeed.bench.counting import STEPS, UPDATES
from dqnspeed.bench.measured_process import measure_speeds, running
from dqnspeed.bench.plan import Piece, Plan
from dqnspeed.config.changes import ALGORITHM, EXACT, TASK
from dqnspeed.config.options import ConfigError

pytestmark = pytest.mark.slow


def test_every_training_does_the_same_work_and_the_users_numbers_win() -> None:
    run = toy().reference
    assert (run.algo.batch_size, run.updates_per_step, run.algo.learning_starts, run.seed) == (32, 1, 40, 3)
    assert run.stop.reward_bound is run.stop.max_steps is run.stop.max_minutes is None and not run.checkpoint.final
    assert Plan([*toy().overrides, "algo.learning_starts=70"]).learning_starts == 70
    free = toy().training("parallelism=process").compose()
    assert free.overrides == ["parallelism=process", "parallelism.samples_per_step=32"]
    assert pickle.loads(free.program.stdin).run.updates_per_step == 1
    games = pickle.loads(toy().training("num_envs=4").compose().program.stdin).run
    assert (games.algo.batch_size, games.updates_per_step) == (32, 1)
    quarter = Plan([*toy().overrides, "parallelism=process", "algo.steps_per_update=4"])
    assert quarter.samples_per_step == quarter.reference.samples_per_step == 8
    lines = toy().equal_work_overrides("num_envs=4", "seed=7")
    assert lines[-1] == "num_envs=4" and "seed=7" in lines
    assert run.exploration.start == run.exploration.final == 0.02 and "exploration.start=0.02" in lines


def test_a_command_to_paste_does_the_work_that_was_measured() -> None:
    assert toy().command_overrides("execution=lean") == [*toy().overrides, "execution=lean"]
    assert toy().command_overrides("num_envs=4")[-2:] == ["algo.batch_size=32", "algo.steps_per_update=1"]


def test_the_kind_of_a_training_is_the_kind_of_its_changes() -> None:
    assert pong().kinds(["execution.no_grad=false"]) == [EXACT]
    assert pong().kinds(["experiment=tweaked_n_envs"]) == [TASK, ALGORITHM]


def test_choices_of_the_user_are_not_varied() -> None:
    assert all(pong().choices()[name] for name in ("backend", "execution", "num_envs", "parallelism"))
    assert not toy().choices()["backend"]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["algo=ppo"], r"algo=ppo: has no replay"),
        (["env.id=ALE/Pnog-v5"], r"env.id=ALE/Pnog-v5: no ALE game .*nearest: ALE/Pong-v5"),
        (["suit=micro"], r"suit: there is no such option"),
        (["quick"], r"quick: cannot be read"),
    ],
)
def test_a_plan_that_cannot_be_trained_is_refused_in_one_sentence(overrides: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Plan(overrides)


class ThreeEvents:
    """A counter that takes three events, and then ends the workload as the bench does."""

    paused = contextlib.nullcontext

    def __init__(self) -> None:
        self.events = list[Mapping[str, float]]()

    def event(self, counts: Mapping[str, float]) -> None:
        self.events.append(counts)
        if len(self.events) == 3:
            raise SystemExit


def events_of(piece: Piece) -> list[Mapping[str, float]]:
    workload: Any = pickle.loads(piece.compose().program.stdin)
    counter: Any = ThreeEvents()
    with pytest.raises(SystemExit):
        workload.function(workload, counter)
    return counter.events


def test_every_piece_counts_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "STORED", 200)
    monkeypatch.setattr(workloads, "MATRIX_SIZE", {"cpu": 16})
    monkeypatch.setattr(workloads, "COPIED_BYTES", 1024)
    names = {"backend=ale", "write", "sample 32", "batch 8", "batch 32"}
    tried = [piece for piece in pong().parts() if piece.group == "envs" and piece.name in names]
    tried += [piece for piece in toy().parts() if piece.group != "envs" and piece.name in names]
    tried += [*toy().limits(), next(pong().limits()), toy().baseline]
    assert {piece.name for piece in tried} >= names
    every = [(piece.group, piece.name) for piece in (*pong().limits(), *pong().parts())]
    assert len(set(every)) == len(every)
    for piece in tried:
        counts = [event[piece.counted] for event in events_of(piece)]
        assert 0 < counts[0] < counts[1] < counts[2], piece


@pytest.mark.integration
def test_a_paused_training_does_not_count_as_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    piece = Plan([*TOY, "parallelism.timeout_s=1", "tracking.report_every_s=0.1"]).training("parallelism=process")
    with running([piece.compose().program]) as [training]:
        time.sleep(1.5)
        found = measure_speeds([training], 0.1, 0.3)
        assert found[STEPS] == pytest.approx(found[UPDATES]) and found[UPDATES] > 0
        assert all(found[part] >= 0 for part in workloads.PARTS)
