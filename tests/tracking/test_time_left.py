"""Time left, estimated from earlier runs."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import TOY

from dqnspeed.tracking.time_left import MAX_RUNS, EarlierRuns, earlier_runs

CONFIG = {"algo": {"name": "ppo"}, "stop": {"max_minutes": 30}, "seed": 1, "tracking": {"name": "local"}}
MACHINE = {"cpu": "fast", "cores": 2, "device": "cpu", "gpu": None, "memory_gib": 8}


def write(folder: Path, took: float | None, means: dict[float, float], seed: int = 2, **changes: Any) -> None:
    """A run with mean returns by seconds, solved at 17 after ``took`` seconds if at all."""
    folder.mkdir(parents=True)
    ended = {"solved": took is not None, "stopped_by": "reward_bound" if took else "max_minutes", "benchmark": True,
             "eval_time_s": 0.0}  # fmt: skip
    summary = {**ended, "time_is_lower_bound": False, "time_to_solve_s": took, "reward_bound": 17, "machine": MACHINE}
    (folder / "summary.json").write_text(json.dumps({**summary, **changes}))
    (folder / "config.json").write_text(json.dumps({**CONFIG, "seed": seed, "tracking": {"name": "wandb"}}))
    rows = [{"time": time, "step": 0, "episode/return_mean_100": mean} for time, mean in means.items()]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def found(folder: Path, config: dict[str, Any] = CONFIG) -> EarlierRuns:
    return earlier_runs(config, MACHINE, [str(folder)])


def test_the_time_left_is_that_of_earlier_runs_from_the_same_mean_on(tmp_path: Path) -> None:
    assert found(tmp_path) == EarlierRuns() and not EarlierRuns().sentence() and EarlierRuns().left(3.0) is None
    write(tmp_path / "2026" / "a", 150.0, {10: -20, 50: -5, 60: -7, 100: 10, 150: 17})
    one = found(tmp_path)
    assert one.sentence() == "usually solved after 150 s here (the only earlier run)"
    itself = tmp_path / "b" / ".." / "2026" / "a"
    assert earlier_runs(CONFIG, MACHINE, [str(tmp_path)], but=itself) == EarlierRuns(), "a run that is resumed"
    write(tmp_path / "b", 240.4, {10: -20, 100: -5, 200: 12})
    write(tmp_path / "c", None, {10: -20, 1800: 3})
    runs = found(tmp_path)
    assert runs.sentence() == "usually solved after 150 to 240 s here (2 of 3 earlier runs)"
    assert runs.left(math.nan) == ("usually 140 to 230 s left", pytest.approx((140 + 230.4) / 2))
    assert runs.left(-6.0) == ("usually 100 to 140 s left", pytest.approx((100 + 140.4) / 2))
    assert runs.left(11.0) == ("usually 0 to 40 s left", pytest.approx(40.4 / 2))
    assert runs.left(16.0) == ("usually moments left", 0)
    seldom = EarlierRuns(runs.solved, 5)
    assert seldom.sentence() == "solved after 150 to 240 s here (2 of 5 earlier runs)" and seldom.left(3.0) is None


def test_the_time_that_earlier_runs_took_is_that_with_evaluations(tmp_path: Path) -> None:
    write(tmp_path / "a", 100.0, {10: -20, 50: 10}, eval_time_s=60.0)
    with (tmp_path / "a" / "metrics.jsonl").open("a") as file:
        line = {"time": 80.0, "step": 0, "episode/return_mean_100": 12.0, "time/evaluating": 30.0}
        file.write(f"{json.dumps(line)}\n")
    assert found(tmp_path).sentence() == "usually solved after 160 s here (the only earlier run)"
    assert found(tmp_path).left(11.0) == ("usually 50 s left", 50.0)


def test_of_many_runs_the_middle_half_is_told_and_long_times_in_minutes() -> None:
    runs = EarlierRuns(tuple(((17.0, 60.0 * minutes),) for minutes in (1, 20, 25, 30, 35, 300)), 8)
    assert runs.sentence() == "usually solved after 21 to 34 min here (6 of 8 earlier runs)"


@pytest.mark.parametrize(
    "changes",
    [
        {"machine": {**MACHINE, "cores": 4}}, {"benchmark": False}, {"time_is_lower_bound": True},
        {"solved": False, "stopped_by": "SIGINT"}, {"machine": None}, {"reward_bound": "?"},
    ],
)  # fmt: skip
def test_runs_that_tell_nothing_of_this_one_do_not_count(changes: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "other", 9.0, {}, **changes)
    assert found(tmp_path).runs == 0
    write(tmp_path / "one", 99.0, {})
    assert found(tmp_path).runs == 1
    assert found(tmp_path, {**CONFIG, "algo": {"name": "dqn"}}).runs == 0


@pytest.mark.parametrize("name", ["summary.json", "config.json", "metrics.jsonl"])
def test_a_damaged_run_is_passed_over(name: str, tmp_path: Path) -> None:
    write(tmp_path / "whole", 99.0, {1: 2})
    write(tmp_path / "cut", 99.0, {1: 2})
    text = (tmp_path / "cut" / name).read_text()
    for size in range(0, len(text), 7):
        (tmp_path / "cut" / name).write_text(text[:size])
        assert found(tmp_path).runs == (2 if name == "metrics.jsonl" else 1)


def test_the_newest_runs_are_looked_at(tmp_path: Path) -> None:
    for number in range(MAX_RUNS + 2):
        write(tmp_path / str(number), 100.0 + number, {})
        os.utime(tmp_path / str(number) / "summary.json", (number, number))
    runs = found(tmp_path)
    assert runs.runs == MAX_RUNS and min(means[-1][1] for means in runs.solved) == 102


def test_a_run_tells_the_usual_time(cli: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    like = [*TOY, "stop.reward_bound=28", "tracking.progress=plain", "stop.max_steps=5000"]
    first = cli(*like, "seed=1", "hydra.run.dir=outputs/first").stdout
    summary = tmp_path / "outputs" / "first" / "summary.json"
    summary.write_text(json.dumps({**json.loads(summary.read_text()), "benchmark": True}))  # other tests run meanwhile
    second = cli(*like, "seed=2").stdout
    assert "usually" not in first
    assert "s here (the only earlier run)" in second and "left  mean" in second
