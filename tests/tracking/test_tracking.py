"""Name of a run, its first and last lines, and its progress in the terminal."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
import rich
import torch
from conftest import Training, make_run, make_toy

from dqnspeed.cli import compose, schemas
from dqnspeed.config import changes
from dqnspeed.system import machine
from dqnspeed.tracking.terminal import PlainProgress, RichProgress, opening, show
from dqnspeed.tracking.time_left import TimeLeft, earlier_times


@pytest.mark.parametrize(
    ("overrides", "name", "kind"),
    [
        ("num_envs=1 env=pong wrappers=standard seed=3 stop.max_steps=9 tracking=local", "baseline", "exact"),
        (r"env.id=toy_envs\:Counter-v0 wrappers=none model=mlp",
         "baseline env.id=toy_envs:Counter-v0 wrappers=none model=mlp", "changes the task, changes the algorithm"),
        ("backend=ale", "baseline backend=ale", "equivalent"),
        ("wrappers=tweaked", "baseline wrappers=tweaked", "changes the task"),
        ("execution=lean execution.threads=1", "baseline execution=lean execution.threads=1", "equivalent"),
        ("parallelism=overlap", "baseline parallelism=overlap", "changes the algorithm"),
        ("optimizer.lr=0.1 optimizer.lr=0.2 stop.reward_bound=5", "baseline optimizer.lr=0.2", "changes the algorithm"),
        ("experiment=speedrun", "speedrun", "equivalent, changes the task, changes the algorithm"),
        ("+env.kwargs.size=5 env=frozen_lake wrappers=none model=mlp algo.learning_starts=40",
         "baseline env.kwargs.size=5 env=frozen_lake wrappers=none model=mlp algo.learning_starts=40",
         "changes the task, changes the algorithm"),
    ],
)  # fmt: skip
def test_a_run_is_named_by_its_rung_and_what_it_really_changes(overrides: str, name: str, kind: str) -> None:
    given = overrides.split()
    run = make_run(*given)
    changed = compose.changed(run, given)
    assert changes.label(run.experiment.name, given, changed).replace("+", "") == name
    assert ", ".join(changes.kinds(run.experiment.kind, changed)) == kind


def test_a_rung_whose_file_is_gone_is_measured_by_its_overrides() -> None:
    given = ["num_envs=2", "seed=3"]
    run = make_run(*given, "experiment.name=mine", "algo.gamma=0.9")
    changed = compose.changed(run, ["sweep=seeds", *given])  # which a job of a sweep has too, and no kind
    assert changes.label("mine", given, changed) == "mine num_envs=2"
    assert changes.kinds(["exact"], changed) == ["changes the algorithm"]


def test_every_option_has_a_kind() -> None:
    known = schemas.keys()
    assert {key.partition(".")[0] for key in known} <= set(changes.KIND_OF) <= set(known)


def test_a_run_begins_by_saying_what_it_is() -> None:
    run = make_run("experiment=speedrun", "env=breakout", "seed=3")
    what, goal, where = opening(run, "speedrun env=breakout", "cpu", 1, Path("outputs/x"))
    assert what.startswith("speedrun env=breakout: BreakoutNoFrameskip-v4, algo=ppo, backend=atari_warp, parallelism=")
    assert what.endswith(", seed 3") and "16 environments" in what
    assert "31.8 over 100 training games" in goal and "30 minutes" in goal
    assert where.startswith("device cpu, ") and where.endswith("files in outputs/x")
    run = make_toy("stop.max_steps=5000", "stop.on=eval", "eval.every_steps=100", "stop.reward_bound=3")
    what, goal, _ = opening(run, "toy", "cuda", 4, Path("x"), resumed=True)
    assert what.startswith("toy resumes: ") and "3 over the games of an evaluation" in goal
    assert opening(make_toy(), "toy", "cpu", 1, Path("x"))[1].startswith("goal: none; limits: none")


METRICS = {
    "episode/count": 1234, "episode/return_mean_100": -12.345, "train/loss": 0.01234, "train/epsilon": 0.02,
    "perf/steps_per_second": 1234.5, "perf/updates_per_second": 123.4, "perf/samples_per_step": 4.0,
}  # fmt: skip


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_live_line_fits(width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rich.get_console(), "width", width)
    run = make_run("experiment=speedrun")
    progress = RichProgress("speedrun env=breakout num_envs=8", TimeLeft(run.stop))
    training = Training(run, agent_steps=1_234_567)
    for seconds in (400, 430):
        training.seconds = seconds
        progress.on_report(training, {**METRICS, "episode/return_mean_100": seconds / 10})
    progress.on_training_end(training, {})
    line = next(line for line in reversed(capsys.readouterr().out.splitlines()) if "limit in" in line)
    assert len(line) <= width and "speedrun env=breakout..." in line
    assert "limit in 0:22:50  mean 43.00" in line
    assert ("loss 0.0123  1,234 steps/s" in line) == (width > 80) and ("4.0 samples/step" in line) == (width == 200)


def test_the_plain_line_shows_everything(capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run("stop.max_minutes=10")
    progress = PlainProgress("baseline num_envs=2", TimeLeft(run.stop))
    progress.on_report(Training(run, agent_steps=5000, seconds=30), METRICS)
    line = (
        "baseline num_envs=2: 30 s  limit in 0:09:30  mean -12.35  loss 0.0123  1,234 steps/s  5,000 steps  1234 games"
    )
    assert capsys.readouterr().out == f"{line}  eps 0.02  123 updates/s  4.0 samples/step\n"
    progress = PlainProgress("baseline num_envs=2", TimeLeft(run.stop))
    progress.on_report(Training(run, agent_steps=5000, seconds=30), {**METRICS, "time/evaluating": 90.0})
    assert capsys.readouterr().out.startswith("baseline num_envs=2: 120 s  limit in 0:08:00  mean -12.35")
    assert show({}, 1)[:2] == ["mean -", "loss -"] and "- games" in show({}, 1)
    assert "30 of 37 games" in show({"episode/count": 37, "episode/counted": 30}, 1)
    assert not any(part.startswith("eps") for part in show({**METRICS, "train/epsilon": math.nan}, 1))


def test_earlier_runs_tell_the_time_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    here = machine.describe(torch.device("cpu"))
    config = {"algo": {"name": "dqn"}, "seed": 0}
    runs = {
        "a": (200.0, True, "cpu"),
        "b": (100.0, True, "cpu"),
        "c": (600.0, False, "cpu"),
        "d": (5.0, True, "another"),
    }
    for name, (seconds, solved, cpu) in runs.items():
        folder = tmp_path / "outputs" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({**config, "seed": name}))
        times = {"solved": solved, "time_to_solve_s": seconds, "eval_time_s": 0.0, "stopped_by": "max_minutes"}
        (folder / "summary.json").write_text(json.dumps({**times, "benchmark": True, "machine": {**here, "cpu": cpu}}))
    (tmp_path / "outputs" / "c" / "config.json").write_text(json.dumps({**config, "algo": {"name": "ppo"}}))
    machine_here = {**here, "cpu": "cpu"}
    for name, damage in {
        "e": [],
        "f": {"machine": "x"},
        "g": {"time_to_solve_s": "x"},
        "h": {"eval_time_s": None},
    }.items():
        shutil.copytree(tmp_path / "outputs" / "a", tmp_path / "outputs" / name)
        summary = json.loads((tmp_path / "outputs" / "a" / "summary.json").read_text())
        (tmp_path / "outputs" / name / "summary.json").write_text(
            json.dumps({**summary, **damage} if damage else damage)
        )
    times = earlier_times(config, machine_here)
    assert times == [100.0, 200.0]
    run = make_run("stop.max_minutes=10")
    progress = PlainProgress("baseline", TimeLeft(run.stop, [*times, math.inf]))
    progress.on_report(Training(run, agent_steps=5000, seconds=30), METRICS)
    first, line = capsys.readouterr().out.splitlines()
    assert first == "solved after 100 to 200 s here (2 of 3 earlier runs)"
    assert line.startswith("baseline: 30 s  usually 70 to 170 s left  mean -12.35")
