"""Whole runs: every rung, the files they leave, and how they end."""

from __future__ import annotations

import contextlib
import csv
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pytest
from conftest import (
    TOY,
    command,
    environment,
    make_run,
    make_toy,
    mostly_integration,
    once_reported,
    shared_memory_of,
    train_in,
)
from forked import Forked
from full_disk import file_size_limit

from dqnspeed import envs
from dqnspeed.actors import ActorError
from dqnspeed.algorithms.update_metrics import NotFiniteError
from dqnspeed.cli.schemas import CONF_DIR
from dqnspeed.config.schema import RunConfig
from dqnspeed.tracking import Callback, TrainingState
from dqnspeed.tracking.files import Lines
from dqnspeed.training.state_file import load

RUNGS = sorted(path.stem for path in (Path(CONF_DIR) / "experiment").glob("*.yaml"))
METRICS = set(
    """episode/return episode/return_mean_100 episode/return_avg episode/length train/loss train/loss_avg
    train/epsilon train/q_mean perf/steps_per_second perf/frames_per_second perf/updates_per_second
    perf/samples_per_step time/acting time/stepping time/sampling time/updating time/waiting""".split()
)


def run_in(folder: Path, run: RunConfig) -> dict[str, Any]:
    return train_in(folder, run, options={"seed": run.seed})


RATIOS = {
    "ppo algo.num_steps=32 num_envs=4 algo.batch_size=32 algo.epochs=4": 4,
    "a2c num_envs=4 algo.num_steps=8": 1,
    "pqn algo.num_steps=32 num_envs=4 algo.batch_size=32 algo.epochs=2": 2,
    "dqn algo.batch_size=32 algo.steps_per_update=4 num_envs=4": 8,
    "q_learning env.id=toy_envs:Anything-v0 +env.kwargs.kind=discrete eval.every_steps=null stop.on=train": 1,
}


@pytest.mark.parametrize("algo", RATIOS)
def test_the_samples_per_step_of_a_run_are_those_of_its_options(algo: str, tmp_path: Path) -> None:
    for steps in (650, 1200):  # within a rollout
        long = ["env.id=toy_envs:Counter-v0", "+env.kwargs.length=2000"] if "env.id" not in algo else []
        run = make_toy(*long, *f"algo={algo}".split(), "device=cpu", f"stop.max_steps={steps}")
        summary = train_in(tmp_path, run, options={"seed": run.seed}, resume=steps > 650)
        assert summary["samples_per_step"] == pytest.approx(RATIOS[algo], rel=0.02), steps
        assert lines_of(tmp_path)[-1]["perf/samples_per_step"] == pytest.approx(RATIOS[algo], rel=0.2)


SHORT = "algo.num_steps=20 num_envs=3 algo.learning_starts=0 algo.batch_size=16"  # four batches of 13 to 15 transitions


@pytest.mark.parametrize(
    ("algo", "length", "ratio"),
    [
        (f"ppo algo.epochs=3 {SHORT}", 7, 3),  # with final frames, which are no transitions
        (f"pqn algo.epochs=2 {SHORT}", 2000, 2),
        ("a2c algo.num_steps=20 num_envs=3 algo.learning_starts=0", 7, 1),
        (f"ppo algo.epochs=3 {SHORT} algo.target_kl=1e-5", 2000, None),  # most batches are left out
    ],
)
def test_samples_per_step_count_what_was_learnt(algo: str, length: int, ratio: float | None, tmp_path: Path) -> None:
    game = ["env.id=toy_envs:Counter-v0", f"+env.kwargs.length={length}"]
    summary = run_in(tmp_path, make_toy(*game, *f"algo={algo}".split(), "device=cpu", "stop.max_steps=1000"))
    last = lines_of(tmp_path)[-1]
    if ratio:
        assert summary["samples_per_step"] == last["perf/samples_per_step"] == ratio
    else:  # of the 16 rollouts of four batches of 15 transitions
        assert 16 <= last["train/updates"] < 16 * 12
        assert last["perf/samples_per_step"] == pytest.approx(15 * last["train/updates"] / 960)


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def wait_until_nobody_is_left(group: int) -> None:
    """Processes of a group end within seconds (multiprocessing's own tracker a moment after the others)."""
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.killpg(group, 0)
            time.sleep(0.05)


ROLLOUTS = ["num_envs=4", "algo.num_steps=8", "algo.batch_size=16", "algo.learning_starts=40"]
A3C = ["num_envs=2", "parallelism.num_actors=2", "algo.batch_size=16", "algo.learning_starts=40"]
SMALLER = {  # for on-policy rungs, whose first update would take long to come
    "a2c": ["num_envs=4", "algo.batch_size=16"],
    "a3c": A3C,
    "speedrun_a3c": A3C,
    "ppo": ROLLOUTS,
    "pqn": ROLLOUTS,
    "speedrun": ROLLOUTS,
    "standard": ROLLOUTS,
    "own_env_ppo": ROLLOUTS,
    "q_learning": ["eval.every_steps=100"],
}
FEWER = ["num_envs=8", "algo.batch_size=32", "algo.steps_per_update=4"]
SOONER = {"speedrun_dqn": FEWER, "speedrun_q": FEWER}  # whose first update would need transitions of many environments


ONE_OF_EACH = ("baseline", "tweaked_process", "a3c", "pqn", "q_learning", "speedrun", "speedrun_q")


@pytest.mark.parametrize("rung", mostly_integration(RUNGS, *ONE_OF_EACH))
def test_every_rung_trains_past_its_first_updates(rung: str, tmp_path: Path) -> None:
    run = make_run(
        f"experiment={rung}", "algo.learning_starts=120", "stop.max_steps=160", "stop.max_minutes=2",
        "tracking=local", "tracking.progress=off", "tracking.report_every_s=0.5", "model.background_frames=50",
        "execution.threads=1", *SMALLER.get(rung, []), *SOONER.get(rung, []),
    )  # fmt: skip
    summary = run_in(tmp_path, run)
    assert summary["stopped_by"] == "max_steps" and not summary["solved"]
    assert (summary["execution"], summary["acting"]) == ("compiled" if run.execution.compile else "eager", "eager")
    assert summary["updates"] > 0 and summary["agent_steps"] >= 160
    if rung in SMALLER:
        logged = {name for line in lines_of(tmp_path) for name in line}
        assert {"train/policy_lag", "train/loss_avg"} <= logged or rung == "q_learning"
        assert ("train/epsilon" in logged) == (rung in ("pqn", "q_learning"))
    elif run.samples_per_step is not None:
        assert summary["samples_per_step"] == pytest.approx(run.samples_per_step, rel=0.35)


def check_files(folder: Path, max_steps: int) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    page = (Path(CONF_DIR).parent / "docs" / "reference" / "run_folder.md").read_text()
    section = page.partition("### summary.json\n")[2].partition("\n## ")[0]
    documented = {key for row in re.findall(r"^\| (`[^|]+) \|", section, re.M) for key in re.findall(r"`(\w+)`", row)}
    assert set(summary) == documented
    assert (summary["peak_gpu_mib"] is None) == (summary["machine"]["gpu"] is None)
    assert summary["frames"] == summary["agent_steps"] >= max_steps  # wrappers=none skips no frames

    reports = lines_of(folder)
    assert len(reports) >= 2
    assert [r["step"] for r in reports] == sorted(r["step"] for r in reports)
    assert set().union(*reports) >= METRICS

    with (folder / "episodes.csv").open() as file:
        episodes = list(csv.DictReader(file))
    assert [int(e["episode"]) for e in episodes] == list(range(1, summary["episodes"] + 1))
    assert all(e["length"] == "7" and float(e["return"]) >= 28 for e in episodes)
    assert (folder / "checkpoints" / "final.safetensors").exists()
    assert (folder / "checkpoints" / "best.safetensors").exists()


@pytest.mark.parametrize("parallelism", ["overlap", "process"])
def test_a_run_leaves_the_agreed_files(parallelism: str, tmp_path: Path) -> None:
    toy = make_toy(f"parallelism={parallelism}", "stop.max_steps=500", "tracking.report_every_s=0.05")
    summary = run_in(tmp_path, toy)
    check_files(tmp_path, 500)
    assert summary == json.loads((tmp_path / "summary.json").read_text())


def test_a_run_that_everything_tracks_leaves_the_files_of_all(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    everything = ["tracking=default", "tracking.progress=off", "tracking.report_every_s=0.05"]
    summary = run_in(tmp_path, make_toy("stop.max_steps=500", *everything))
    check_files(tmp_path, 500)
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    (folder,) = (tmp_path / "tensorboard").iterdir()
    assert folder.name == "baseline_seed_0"  # which TensorBoard calls the run
    events = EventAccumulator(str(folder)).Reload()
    assert len(events.Scalars("episode/return")) == summary["episodes"]  # each once
    assert set(events.Tags()["scalars"]) >= METRICS
    (final,) = events.Scalars("final/return_mean_100")
    assert (final.step, final.value) == (summary["agent_steps"], pytest.approx(summary["return_mean_100"]))
    assert "_hparams_/experiment" in events.summary_metadata
    reports = [report for report in lines_of(tmp_path) if "train/loss" in report]  # two may be of the same step
    losses = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert losses == [(report["step"], pytest.approx(report["train/loss"], rel=1e-3)) for report in reports]


def test_a_signal_that_comes_after_the_end_of_a_run_is_told_and_changes_nothing_of_it(tmp_path: Path) -> None:
    class Kills(Callback):
        def on_training_end(self, training: TrainingState, summary: Mapping[str, Any]) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    summary = train_in(tmp_path, make_toy("stop.max_steps=60"), callbacks=[Kills()])
    assert (summary["stopped_by"], summary["signal"]) == ("max_steps", "SIGTERM")  # which ends a sweep
    assert "signal" not in json.loads((tmp_path / "summary.json").read_text())


ALGORITHMS = sorted({path.stem for path in Path(CONF_DIR, "algo").glob("*.yaml")} - {"q_learning"})


@pytest.mark.integration
@pytest.mark.parametrize("line", [*ALGORITHMS, "ppo parallelism=overlap num_envs=4", "ppo parallelism=process"])
def test_cartpole_is_solved(line: str, tmp_path: Path) -> None:
    limits = ["stop.max_steps=1500000", "stop.max_minutes=20", "tracking.progress=off"]
    summary = run_in(tmp_path, make_run("experiment=cartpole", *f"algo={line}".split(), *limits))
    assert summary["solved"] and summary["stopped_by"] == "reward_bound"
    assert summary["return_mean_100"] >= 475
    assert 0 < summary["time_to_solve_s"] <= summary["wall_time_s"]


CATCH = [
    "env.id=toy_envs:Catch-v0", "wrappers=none", "model=board", "model.hidden=[32]", "num_envs=4", "algo.n_step=3",
    "algo.batch_size=32", "algo.learning_starts=200", "algo.steps_per_update=4", "algo.target_update_every=50",
    "algo.max_grad_norm=10", "optimizer.lr=1e-3", "optimizer.eps=1e-4", "replay.buffer_size=5000",
    "exploration.decay_steps=1000", "execution.threads=1", "tracking=local", "tracking.progress=off", "checkpoint=none",
    "stop.reward_bound=0.5", "stop.window=50", "stop.max_steps=40000",
]  # fmt: skip


@pytest.mark.integration
@pytest.mark.parametrize(
    "line",
    [
        "algo=munchausen algo.loss=mse",
        "algo=iqn",
        "algo=c51",
        "algo=rainbow",
        "algo=sac_discrete algo.target_entropy=0.3 algo.temperature=0.1",
        "replay=prioritized",
        "exploration=noisy",
        "model=impala model.channels=[8]",
    ],
)
def test_a_ball_is_caught_by_its_pixels(line: str, tmp_path: Path) -> None:
    """Three times of four, where random moves catch it once in five; three seeds need 1,300 to 5,000 steps."""
    summary = run_in(tmp_path, make_run(*CATCH, *line.split()))
    assert summary["solved"], summary["return_mean_100"]


def test_solved_is_the_mean_of_the_last_games_of_all_environments(tmp_path: Path) -> None:
    run = make_toy("num_envs=3", "stop.reward_bound=28", "stop.window=10", "stop.max_steps=5000")
    summary = run_in(tmp_path, run)
    assert load(tmp_path / "checkpoints" / "best.safetensors")["progress"]["return_mean"] >= 28
    assert summary["solved"] and 10 <= summary["episodes"] <= 12  # every return is at least 28


COIN = ["env.id=toy_envs:Coin-v0", "stop.reward_bound=0.9", "algo.learning_starts=100000"]


@pytest.mark.integration
@pytest.mark.parametrize(
    "kind",
    [
        ["replay.buffer_size=100000", "parallelism=process", "parallelism.num_actors=2", "num_envs=64"],
        ["algo=ppo", "algo.num_steps=16", "algo.batch_size=256", "num_envs=128"],
    ],
)
def test_short_games_do_not_come_first(kind: list[str], tmp_path: Path) -> None:
    """By a coin, games of 2 steps return 1 and games of 200 steps -1; a mean of 0.9 over 100 of them is no luck."""
    summary = run_in(tmp_path, make_toy(*COIN, *kind, "stop.max_steps=57600"))
    assert summary["stopped_by"] == "max_steps" and not summary["solved"]
    assert summary["return_mean_games"] == 100 and abs(summary["return_mean_100"]) < 0.5, "0, with a deviation of 0.1"
    means = [line["episode/return_mean_100"] for line in lines_of(tmp_path) if line.get("episode/counted", 0) >= 100]
    assert means and max(means) < 0.6


def test_a_run_that_loses_its_actor_is_saved_with_all_its_steps(tmp_path: Path) -> None:
    """Else a resumed run would wait for the missing steps."""
    line = ["parallelism=process", "env.id=toy_envs:Broken-v0", "stop.max_steps=400"]
    with pytest.raises(ActorError, match="the toy broke"):
        run_in(tmp_path, make_toy(*line, "env.kwargs={how: raise}"))
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["stopped_by"] == "error" and "the toy broke" in summary["error"]
    final = load(tmp_path / "checkpoints" / "final.safetensors")
    counted = sum(int(actor["agent_steps"]) for actor in final["actors"].values())
    assert counted == final["progress"]["agent_steps"] > 0


@pytest.mark.parametrize("how", ["no worker", "no answer"])
def test_a_worker_that_does_not_make_its_environment_ends_the_run(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dqnspeed.envs.workers.START_TIMEOUT_S", 300.0 if how == "no worker" else 1.0)
    run = make_toy("num_envs=2", "parallelism.timeout_s=1", "env.id=toy_envs:Broken-v0", f"env.kwargs={{how: {how}}}")
    with pytest.raises(ActorError, match=r"^an environment's process ended, or took more than \d+ s, while env"):
        envs.make_vector_env(run, overlap=True)
    while multiprocessing.active_children():
        time.sleep(0.05)


@pytest.mark.parametrize("parallelism", ["serial", "overlap"])
def test_the_info_of_an_environment_and_its_random_numbers_may_be_anything(parallelism: str, tmp_path: Path) -> None:
    run = make_toy("env.id=toy_envs:Talkative-v0", "num_envs=2", "stop.max_steps=100", f"parallelism={parallelism}",
                   "eval.every_steps=50", "eval.episodes=2")  # fmt: skip
    assert run_in(tmp_path, run)["episodes"] > 4
    games = load(tmp_path / "checkpoints" / "final.safetensors")["actors"]["0"]["env"]
    assert not np.any(games["lives"]), "of an environment that is no Atari game, info says nothing of lives"


def test_a_reward_of_nan_stops_the_run_and_is_explained(tmp_path: Path) -> None:
    run = make_toy("env.id=toy_envs:Broken-v0", "env.kwargs={how: spoil}", "stop.max_steps=100000")
    with pytest.raises(NotFiniteError, match=r"update \d+: .*Likely causes"):
        run_in(tmp_path, run)
    assert not (tmp_path / "checkpoints" / "final.safetensors").exists()


def test_weights_that_are_not_finite_are_never_the_best(tmp_path: Path) -> None:
    run = make_toy(
        "optimizer.lr=1e38", "stop.on=eval", "eval.every_steps=200", "stop.max_steps=500",
        "tracking.report_every_s=1000",
    )  # fmt: skip
    with pytest.raises(NotFiniteError):
        run_in(tmp_path, run)
    assert json.loads((tmp_path / "summary.json").read_text())["eval_return_mean"] is not None
    assert list((tmp_path / "checkpoints").glob("*")) == []


def test_a_full_disk_warns_once_and_leaves_whole_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = Lines(tmp_path / "metrics.jsonl")
    with file_size_limit(1000):
        for number in range(30):
            lines.add(json.dumps({"number": number, "text": "x" * 60}))
    lines.add(json.dumps({"number": 30}))  # there is room again
    lines.close()
    numbers = [json.loads(line)["number"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert numbers == [*range(11), 30]
    assert len([r for r in caplog.records if "could not be written, training continues" in r.message]) == 1


@pytest.mark.parametrize("left", ["3,4", "3,4\n5,", "3,4\n5,6", "3,4\n" + "\0" * 4096])
def test_what_a_power_cut_left_of_a_line_is_no_part_of_the_next(left: str, tmp_path: Path) -> None:
    path = tmp_path / "episodes.csv"
    path.write_text(f"a,b\n1,2\n{left}")
    lines = Lines(path, "a,b")
    lines.add("7,8")
    lines.close()
    kept = left.splitlines()[:-1]
    assert path.read_text().splitlines() == ["a,b", "1,2", *kept, "7,8"]
    path.write_text("a,")
    Lines(path, "a,b").close()
    assert path.read_text() == "a,b\n"


def test_a_run_whose_end_the_disk_refuses_says_so_and_fails(tmp_path: Path) -> None:
    """The system itself refuses the write: no file of that process may grow beyond 15 kB."""
    (tmp_path / "limited.py").write_text(
        "import resource\nfrom dqnspeed.cli import train\ndef main():\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, resource.RLIM_INFINITY))\n    train.main()\n"
    )
    few = ["stop.max_steps=150", "checkpoint.every_minutes=0.0005"]
    result = forked.run("limited", *TOY, "hydra.run.dir=run", *few, cwd=tmp_path, env=environment(), timeout=100)
    assert result.returncode == 1 and "150 agent steps" in result.stdout and "Traceback" not in result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("dqnspeed: run: could not be written: checkpoints/final.safetensors (")
    assert result.stdout.count("checkpoint step_") == 1  # however many periodic ones there were
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["not_written"]
    assert not list((tmp_path / "run").rglob("*.partial"))


@pytest.mark.parametrize(
    ("more", "most"),
    [
        (["parallelism.samples_per_step=free"], 500),
        (["num_envs=3"], 502),
        (["parallelism.num_actors=2", "parallelism.samples_per_step=8"], 501),
    ],
)
def test_actors_pass_the_last_step_together_at_most(more: list[str], most: int, tmp_path: Path) -> None:
    summary = run_in(tmp_path, make_toy("parallelism=process", "stop.max_steps=500", *more))
    assert 500 <= summary["agent_steps"] <= most
    assert summary["steps_over_limit"] == summary["agent_steps"] - 500


def test_what_is_not_finite_is_null_in_a_summary(tmp_path: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    run = make_toy("env.id=toy_envs:Broken-v0", "env.kwargs={how: spoil}", "algo.learning_starts=2000",
                   "stop.max_steps=1100")  # fmt: skip
    summary = run_in(tmp_path, run)
    assert summary["episodes"] == 1 and summary["return_mean_100"] is None
    for path in (tmp_path / "summary.json", *tmp_path.glob("*.jsonl")):
        for text in [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines():
            json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize(
    ("number", "parallelism"),
    [(signal.SIGINT, "serial"), (signal.SIGHUP, "overlap"), (signal.SIGINT, "process")],
)
def test_a_signal_ends_a_run_cleanly(parallelism: str, number: signal.Signals, tmp_path: Path) -> None:
    # A large batch, so that the signal mostly falls into an update; and in a run of its own process every tracker.
    trackers = ["tracking=default", "tracking.progress=off"] if parallelism == "serial" else []
    arguments = [*TOY, f"parallelism={parallelism}", "num_envs=2", "hydra.run.dir=run", "algo.batch_size=2000",
                 "model.hidden=[512]", *trackers]  # fmt: skip
    shared = set[Path]()

    def act() -> None:
        shared.update(shared_memory_of(lambda pid: os.getpgid(pid) == run.pid))
        os.killpg(run.pid, number)  # as a terminal sends Ctrl-C: to the children too

    spawns = number == signal.SIGINT or parallelism == "process"  # in its group, and deaf to the signal
    with Forked("dqnspeed.train", *arguments, cwd=tmp_path, env=environment(), spawns=spawns) as run:
        with once_reported(tmp_path / "run", act):
            out, errors = run.communicate(timeout=100)
        wait_until_nobody_is_left(run.pid)
    assert shared or parallelism != "process" or sys.platform != "linux"
    assert run.returncode == 128 + number
    assert "Traceback" not in errors
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["stopped_by"] == number.name
    final = load(tmp_path / "run" / "checkpoints" / "final.safetensors")
    assert final["progress"]["agent_steps"] == summary["agent_steps"]
    assert "To resume: " in out and "-m dqnspeed.train resume=run\n" in out
    assert [path for path in shared if path.exists()] == []


@pytest.mark.parametrize("parallelism", mostly_integration(["overlap", "process"], "process"))
def test_children_do_not_outlive_a_learner_that_was_killed(parallelism: str, tmp_path: Path) -> None:
    run = subprocess.Popen(
        command(*TOY, f"parallelism={parallelism}", "num_envs=1", "hydra.run.dir=run"),
        cwd=tmp_path, env=environment(), start_new_session=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    shared = set[Path]()

    def act() -> None:
        shared.update(shared_memory_of(lambda pid: os.getpgid(pid) == run.pid))
        run.kill()

    try:
        with once_reported(tmp_path / "run", act):
            run.wait(180)
    finally:
        run.kill()
    assert shared or parallelism != "process" or sys.platform != "linux"
    wait_until_nobody_is_left(run.pid)
    assert [path for path in shared if path.exists()] == []


def test_a_sweep_goes_on_after_a_failure(cli: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    result = cli("-m", *TOY, "optimizer.lr=1e30,0.001", "stop.max_steps=300", "hydra.sweep.dir=sweep")
    assert result.returncode == 1 and "Traceback" not in result.stderr
    ends = [json.loads((tmp_path / "sweep" / str(i) / "summary.json").read_text())["stopped_by"] for i in range(2)]
    assert ends == ["error", "max_steps"]
    headline, job = result.stderr.splitlines()[-2:]
    assert headline == "dqnspeed: 1 of 2 jobs failed:" and job.startswith("  sweep/0: ") and "is not finite" in job


def test_ctrl_c_ends_a_whole_sweep_and_reports_what_was_left_out(tmp_path: Path) -> None:
    line = ["-m", *TOY, "seed=0,1,2", "hydra.sweep.dir=sweep"]
    with (
        Forked("dqnspeed.train", *line, cwd=tmp_path, env=environment()) as run,
        once_reported(tmp_path / "sweep" / "0", lambda: os.killpg(run.pid, signal.SIGINT)),
    ):
        _, errors = run.communicate()
    assert run.returncode == 130 and errors.endswith("the sweep was ended: 2 of its 3 jobs were left out.\n")


def test_a_learning_rate_falls_by_the_clock_where_only_minutes_are_given(tmp_path: Path) -> None:
    run = make_toy(
        "optimizer.lr=1e-3", "optimizer.lr_final=0", "optimizer.lr_decay_steps=null", "stop.max_steps=null",
        "stop.max_minutes=0.05", "tracking.report_every_s=0.2",
    )  # fmt: skip
    run_in(tmp_path, run)
    rows = list[dict[str, Any]]()
    for line in lines_of(tmp_path):  # without an update since the line before, the rate is older than that line
        if "train/learning_rate" in line and (not rows or line["train/updates"] > rows[-1]["train/updates"]):
            rows.append(line)
    expected = [max(0.0, 1e-3 * (1 - row["time"] / 3)) for row in rows]
    assert len(rows) > 3
    for row, before, now in zip(rows[1:], expected, expected[1:], strict=False):
        assert now - 1e-9 <= row["train/learning_rate"] <= before
