"""What is measured: equal work, kinds of changes, and every piece counting what its unit names."""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
import time
from collections.abc import Mapping
from typing import Any

import forked
import pytest
from conftest import TESTS, TOY
from plans import pong, toy

from dqnspeed.bench import measured_process, workloads
from dqnspeed.bench.counting import STEPS, UPDATES
from dqnspeed.bench.measured_process import running, speeds_of
from dqnspeed.bench.plan import Piece, Plan
from dqnspeed.config.changes import ALGORITHM, EQUIVALENT, EXACT, TASK
from dqnspeed.config.options import ConfigError

pytestmark = pytest.mark.slow


def test_every_training_does_the_same_work_and_the_users_numbers_win() -> None:
    run = toy().reference
    assert (run.algo.batch_size, run.updates_per_step, run.algo.learning_starts, run.seed) == (32, 1, 40, 3)
    assert run.stop.reward_bound is run.stop.max_steps is run.stop.max_minutes is None and not run.checkpoint.final
    assert Plan([*toy().overrides, "algo.learning_starts=70"]).starts == 70
    free = toy().rung("parallelism=process").make()
    assert free.overrides == ("parallelism=process", "parallelism.samples_per_step=32")
    assert pickle.loads(free.program.stdin).run.updates_per_step == 1
    games = pickle.loads(toy().rung("num_envs=4").make().program.stdin).run
    assert (games.algo.batch_size, games.updates_per_step) == (32, 1)
    quarter = Plan([*toy().overrides, "parallelism=process", "algo.steps_per_update=4"])
    assert quarter.ratio == quarter.reference.samples_per_step == 8
    assert toy().lines("num_envs=4", "seed=7")[-1] == "num_envs=4" and "seed=7" in toy().lines("num_envs=4", "seed=7")


def test_almost_every_action_takes_the_network() -> None:
    assert toy().reference.exploration.start == toy().reference.exploration.final == 0.02
    assert "exploration.start=0.02" in toy().lines()


def test_a_line_to_paste_does_the_work_that_was_measured() -> None:
    assert toy().to_paste("execution=lean") == [*toy().overrides, "execution=lean"]
    assert toy().to_paste("num_envs=4")[-2:] == ["algo.batch_size=32", "algo.steps_per_update=1"]


@pytest.mark.parametrize(
    ("override", "kinds"),
    [
        ("backend=ale", [EQUIVALENT]),
        ("execution.no_grad=false", [EXACT]),
        ("experiment=tweaked_n_envs", [TASK, ALGORITHM]),
    ],
)
def test_the_kind_of_a_rung_is_that_of_what_it_changes(override: str, kinds: list[str]) -> None:
    assert pong().kinds([override]) == kinds


def test_choices_of_the_user_are_not_varied() -> None:
    assert {"backend", "execution", "num_envs", "parallelism"} <= set(pong().axes())
    assert not toy().axes().get("backend")


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["algo=ppo"], r"algo=ppo: has no replay"),
        (["env.id=ALE/Pnog-v5"], r"env.id=ALE/Pnog-v5: no ALE game .* nearest: Pong"),
        (["suit=micro"], r"suit: there is no such option"),
        (["quick"], r"quick: cannot be read"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence_at_once(overrides: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Plan(overrides)


class Few:
    """Takes a few events, and then ends the piece as the bench would."""

    stopped = contextlib.nullcontext

    def __init__(self) -> None:
        self.events = list[Mapping[str, float]]()

    def event(self, counts: Mapping[str, float]) -> None:
        self.events.append(counts)
        if len(self.events) == 3:
            raise SystemExit


def events_of(piece: Piece) -> list[Mapping[str, float]]:
    made: Any = pickle.loads(piece.make().program.stdin)
    counter: Any = Few()
    with pytest.raises(SystemExit):
        made.piece(made, counter)
    return counter.events


def test_every_piece_counts_what_its_unit_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "STORED", 200)
    monkeypatch.setattr(workloads, "MATRIX", {"cpu": 16})
    monkeypatch.setattr(workloads, "COPIED", 1024)
    names = {"backend=ale", "write", "sample 32", "8 games", "batch 32"}
    tried = [piece for piece, _ in pong().pieces() if piece.group == "envs" and piece.name in names]
    tried += [piece for piece, _ in toy().pieces() if piece.group != "envs" and piece.name in names]
    tried += [*toy().floors(), next(pong().floors()), toy().baseline()]
    assert {piece.name for piece in tried} >= names
    every = [(piece.group, piece.name) for piece in (*pong().floors(), *(piece for piece, _ in pong().pieces()))]
    assert len(set(every)) == len(every)
    for piece in tried:
        counts = [event[piece.counted] for event in events_of(piece)]
        assert 0 < counts[0] < counts[1] < counts[2], piece
        bound = piece.make().bound
        assert piece.unit == f"{piece.counted}/s"
        assert bound is None or any(bound.name in floor.name for floor in pong().floors()), piece


def test_the_arithmetic_of_an_update_is_that_of_its_layers() -> None:
    # Layers 3-8-3 with biases left out: forward and target 2 * 48 each, backward of weights 96 and of activations 48.
    pieces = {(piece.group, piece.name): piece for piece, _ in toy().pieces()}
    counts = events_of(pieces["update", "batch 32"])
    assert counts[0][workloads.FLOP] == 32 * (96 + 96 + 96 + 48)


def test_a_training_that_waits_is_not_taken_for_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    if forked.FORKS:
        monkeypatch.setattr(measured_process, "subprocess", forked.PIECES)
    piece = Plan([*TOY, "parallelism.timeout_s=1", "tracking.report_every_s=0.1"]).rung("parallelism=process")
    with running(piece.make().program) as [training]:
        for _ in range(2):
            time.sleep(1.5)
            found = speeds_of([training], 0.1, 0.3)
            assert found[STEPS] == pytest.approx(found[UPDATES]) and found[UPDATES] > 0
            assert all(found[part] >= 0 for part in workloads.PARTS)


def test_a_piece_that_cannot_be_composed_says_why() -> None:
    with pytest.raises(ConfigError, match="backend=ale: needs an ALE game"):
        toy().rung("backend=ale").make()
    assert dataclasses.is_dataclass(toy().rung("num_envs=2").make())
