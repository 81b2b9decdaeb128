"""Resumed runs: no step is lost or repeated, and `serial` runs equal uninterrupted ones bit for bit."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pytest
from conftest import TOY, Cli, compose, environment, make_run, make_toy, mostly_integration, train_in, untimed
from forked import Forked
from omegaconf import OmegaConf

from dqnspeed import envs
from dqnspeed.cli import resume as resuming
from dqnspeed.cli.errors import USER_ERRORS, explain
from dqnspeed.cli.preflight import check_folder_is_new
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import VectorEnv
from dqnspeed.report.contents import Report
from dqnspeed.report.progress import progress_of
from dqnspeed.report.rungs import rungs_of
from dqnspeed.report.runs import read_run
from dqnspeed.system import signing
from dqnspeed.tracking import Callback, TrainingState
from dqnspeed.tracking.run_folder import SWEEP, read_metrics
from dqnspeed.training.checkpoint import newest
from dqnspeed.training.loop import train
from dqnspeed.training.request import RunRequest
from dqnspeed.training.state_file import State, load

SMALL_ATARI = [
    "env=breakout", "env.sticky_actions=0.25", "model=small", "model.hidden=[16]", "algo.batch_size=16",
    "algo.learning_starts=150", "algo.n_step=3", "replay.buffer_size=1000", "exploration.decay_steps=300",
    "tracking=local", "tracking.progress=off", "algo.target_update_every=20", "execution.threads=1",
]  # fmt: skip


FAMILY = ["wrappers=none", "model=mlp", "model.hidden=[16]", "algo.learning_starts=40", "tracking=local",
          "tracking.progress=off", "execution.threads=1"]  # fmt: skip

REPLAYED = ["num_envs=2", "algo.batch_size=16", "algo.steps_per_update=4", "algo.target_update_every=10",
            "replay.buffer_size=500"]  # fmt: skip


def go(folder: Path, run: RunConfig, resumed: bool = False, **more: Any) -> State:
    """Train in ``folder``, from its newest checkpoint if there is one; returns the final state."""
    folder.mkdir(exist_ok=True)
    train_in(folder, run, resume=resumed, **more)
    return load(folder / "checkpoints" / "final.safetensors")


def episodes(folder: Path) -> list[dict[str, str]]:
    with (folder / "episodes.csv").open() as file:
        return list(csv.DictReader(file))


SMALL_PPO = ["num_envs=3", "algo.num_steps=20", "algo.batch_size=16"]
RESUMED = {
    "serial": [*SMALL_ATARI, "num_envs=2", "algo.batch_size=16"],
    "sticky actions by the id": [*SMALL_ATARI, "env.id=ALE/Pong-v5", "env.sticky_actions=null", "num_envs=8"],
    "overlap": [*SMALL_ATARI, "parallelism=overlap", "num_envs=2", "algo.batch_size=16"],
    "emulator with a reset pool": [
        *SMALL_ATARI, "backend=atari_warp", "backend.reset_pool=1", "num_envs=2", "env.max_episode_frames=300"
    ],
    "tweaked with evaluations": [
        *SMALL_ATARI, "wrappers=tweaked", "optimizer=rmsprop", "eval.every_steps=150", "eval.episodes=2",
        "env.max_episode_frames=300",
    ],
    "an environment without states of its own": [*TOY, "env.id=CartPole-v1", "num_envs=2"],
    "a2c": ["env.id=CartPole-v1", *FAMILY, "algo=a2c", "num_envs=5", "algo.num_steps=3"],
    "ppo": ["env.id=CartPole-v1", *FAMILY, "algo=ppo", *SMALL_PPO, "algo.adaptive_kl_target=0.01"],
    "pqn": ["env.id=CartPole-v1", *FAMILY, "algo=pqn", *SMALL_PPO, "exploration.decay_steps=60"],
    **{
        name: ["env.id=CartPole-v1", *FAMILY, f"algo={name}", *REPLAYED]
        for name in ("munchausen", "iqn", "c51", "rainbow", "sac_discrete")
    },
    "q_learning": [*FAMILY, "env=frozen_lake", "algo=q_learning", "eval.every_steps=40"],
}  # fmt: skip
KEPT = ("serial", "emulator with a reset pool", "overlap", "ppo", "rainbow", "q_learning")


@pytest.mark.parametrize("kind", mostly_integration(RESUMED, *KEPT))
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(kind: str, tmp_path: Path) -> None:
    def run(steps: int) -> RunConfig:
        return make_run(*RESUMED[kind], "checkpoint.replay=true", f"stop.max_steps={steps}")

    whole = go(tmp_path / "whole", run(300))
    for i, steps in enumerate((90, 191, 300)):
        parts = go(tmp_path / "parts", run(steps), resumed=i > 0)

    assert parts["progress"]["resumed_at"] and parts["learner"]["updates"] > 10
    expected, got = untimed(whole), untimed(parts)
    assert expected.keys() == got.keys()
    different = [name for name, value in expected.items() if repr(value) != repr(got[name])]  # NaN differs from NaN
    assert different == []

    def untimed_rows(folder: str) -> list[list[str]]:
        return [[v for k, v in e.items() if k != "time"] for e in episodes(tmp_path / folder)]

    assert untimed_rows("whole") == untimed_rows("parts")


def test_games_that_cannot_be_saved_begin_anew_and_no_transition_crosses_the_gap(tmp_path: Path) -> None:
    overrides = [*SMALL_ATARI, "backend=ale", "num_envs=2", "checkpoint.replay=true", "algo.batch_size=16"]
    before = go(tmp_path, make_run(*overrides, "stop.max_steps=200"))
    more = before["progress"]["agent_steps"] + 30
    after = go(tmp_path, make_run(*overrides, f"stop.max_steps={more}"), resumed=True)
    for lane, cut in enumerate(before["replay"]["written"]):
        columns = {name: column[lane] for name, column in after["replay"]["columns"].items() if name != "frames"}
        assert columns["age"][cut] == 0 and not columns["transition"][cut - 1]
        ended = columns["truncated"][cut - 2] or columns["terminated"][cut - 2] or not columns["transition"][cut - 2]
        assert ended or columns["age"][cut - 1] == 0


@pytest.mark.parametrize("restored", [True, False])
def test_later_games_do_not_count_first(restored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a coin, games of 2 steps return 1 and games of 200 steps -1; the run is ended after 100 steps of each."""
    coin = [*TOY, "env.id=toy_envs:Coin-v0", "num_envs=128", "algo.batch_size=32", "algo.learning_starts=100000",
            "replay.buffer_size=100000", "stop.reward_bound=0.9"]  # fmt: skip
    go(tmp_path, make_run(*coin, "stop.max_steps=12800"))
    if not restored:
        monkeypatch.setattr(VectorEnv, "load_state_dict", lambda *_: False)
    state = go(tmp_path, make_run(*coin, "stop.max_steps=16000"), resumed=True)["progress"]
    assert state["agent_steps"] >= 16000, "it is not solved"
    ended = episodes(tmp_path)
    assert len(ended) == state["returns"]["ended"] > 200 and {row["return"] for row in ended} == {"1"}
    assert state["returns"]["count"] < 20, "all but a few games began after one that goes on, or went on"
    assert len({row["begun"] for row in ended}) == len(ended)


def test_a_replay_that_was_not_saved_is_filled_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    toy = ["algo.learning_starts=100", "algo.batch_size=8", "algo.steps_per_update=2", "replay=prioritized"]
    before = go(tmp_path, make_toy(*toy, "stop.max_steps=500"))
    assert "filled anew" not in caplog.text
    after = go(tmp_path, make_toy(*toy, "stop.max_steps=590"), resumed=True)
    assert caplog.text.count("(checkpoint.replay=false): learning continues after 100 agent steps") == 1
    assert after["learner"]["updates"] == before["learner"]["updates"]
    later = go(tmp_path, make_toy(*toy, "stop.max_steps=800", "checkpoint.replay=true"), resumed=True)
    assert later["replay"]["sampler"]["batches"] == later["learner"]["updates"]  # by which beta grows
    assert later["learner"]["updates"] == before["learner"]["updates"] + (800 - 690) // 2
    assert later["progress"]["resumed_at"] == [500, 590] and later["progress"]["lost_s"] == 0
    check_files(tmp_path, steps_per_episode=7)


def test_the_time_of_work_that_was_lost_counts(tmp_path: Path) -> None:
    """Files of a run that was killed 40 s after its checkpoint, and again 20 s after it was resumed."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    toy = "tracking.trackers=[tensorboard]"
    seconds = go(tmp_path, make_toy(toy, "stop.max_steps=100"))["progress"]["seconds"]
    metrics = tmp_path / "metrics.jsonl"
    checkpoint = (tmp_path / "checkpoints" / "final.safetensors").read_bytes()
    for lost in (40, 60):
        (tmp_path / "checkpoints" / "final.safetensors").write_bytes(checkpoint)
        with metrics.open("a") as file:
            line = {"step": 150, "time": seconds + lost, "time/evaluating": 2.0 * lost}
            file.write(json.dumps(line) + '\n{"step": 160, "ti')
        state = go(tmp_path, make_toy(toy, "stop.max_steps=200"), resumed=True)
        summary = json.loads((tmp_path / "summary.json").read_text())
        assert summary["lost_s"] == pytest.approx(lost, abs=0.1) and not summary["time_is_lower_bound"]
        assert seconds + 3 * lost < summary["wall_time_s"] and summary["eval_time_s"] == 2 * lost
        last = check_files(tmp_path, steps_per_episode=7)
        assert last["time"] >= seconds + lost and last["time/evaluating"] == 2 * lost
        assert (150, None) not in {(r["step"], r.get("train/updates")) for r in read_metrics(tmp_path)[0]}
    assert state["progress"]["resumed_at"] == [100] and state["progress"]["lost_s"] == pytest.approx(60, abs=0.1)

    shown = EventAccumulator(str(next(tmp_path.glob("tensorboard/*")))).Reload().Scalars("episode/length")
    assert [event.step for event in shown] == [int(row["agent_step"]) for row in episodes(tmp_path)], "each once"

    metrics.write_text("")  # nobody knows how long the lost work took
    go(tmp_path, make_toy("stop.max_steps=300"), resumed=True)
    assert json.loads((tmp_path / "summary.json").read_text())["time_is_lower_bound"]


def test_a_run_that_begins_again_has_its_whole_time_and_is_marked(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 70, "time": 30.0}\n{"st')
    toy = ["stop.reward_bound=28", "stop.window=3", "stop.max_minutes=0.5"]  # which had passed
    go(tmp_path, make_toy(*toy), resumed=True)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["solved"] and 0 < summary["time_to_solve_s"] <= summary["wall_time_s"] < 30
    assert (summary["lost_s"], summary["begun_again"], summary["resumed_at"]) == (30, True, [])
    last = check_files(tmp_path, steps_per_episode=7)
    assert last["step"] == summary["agent_steps"] and last["time"] < 30
    run = read_run(tmp_path)
    report = Report(rungs_of([run]), None, None, progress_of([tmp_path], [run]), [])
    assert run.remarks[0] == "began again"
    assert any(warning.startswith("Began again: 1 of 1 runs") for warning in report.warnings)


def test_a_resumed_run_has_the_results_of_all_of_it_or_none(tmp_path: Path) -> None:
    """An earlier summary would be mistaken for the result of the whole run, if the resumed run were killed."""
    toy = ["stop.reward_bound=-1000", "stop.window=1"]
    solved = go(tmp_path, make_toy(*toy, "stop.max_steps=300"))["progress"]["time_to_solve_avg"]
    assert solved is not None and (tmp_path / "summary.json").exists()

    class Looks(Callback):
        def on_update(self, training: TrainingState) -> None:
            assert not (tmp_path / "summary.json").exists()

    more = make_toy("stop.reward_bound=1000", "stop.max_steps=600")
    state = go(tmp_path, more, resumed=True, callbacks=[Looks()])
    assert json.loads((tmp_path / "summary.json").read_text())["agent_steps"] >= 600
    assert state["progress"]["time_to_solve_avg"] is None  # that was another bound


def test_what_a_refused_resumption_would_have_changed_stays(tmp_path: Path) -> None:
    run = make_toy("stop.max_steps=100", "checkpoint=none")
    train_in(tmp_path, run)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="nothing to resume from"):
        train_in(tmp_path, run, options={"seed": 5}, resume=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_run_whose_environment_has_changed_is_refused_in_one_sentence(tmp_path: Path) -> None:
    run = make_toy("stop.max_steps=100")
    spec = envs.describe(run)
    train_in(tmp_path, run)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    longer = dataclasses.replace(run, stop=dataclasses.replace(run.stop, max_steps=200))
    with pytest.raises(ConfigError, match=r"^resume=.*: its checkpoint is of another network\. Did the environment or"):
        train(RunRequest(longer, dataclasses.replace(spec, num_actions=4), tmp_path, {}, resume=True))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


def test_a_damaged_configuration_is_taken_from_the_newest_checkpoint(
    cli: Cli, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert cli(*TOY, "seed=3", "hydra.run.dir=run", "stop.max_steps=100").returncode == 0
    folder = tmp_path / "run"
    config, best, final = (
        folder / name for name in ("config.json", "checkpoints/best.safetensors", "checkpoints/final.safetensors")
    )
    whole = config.read_text()
    assert load(final)["config"] == json.loads(whole) == load(best)["config"] != {}

    def loaded() -> RunConfig:
        return resuming.compose.from_hydra(resuming.load_run(folder))

    expected = loaded()
    assert expected.seed == 3 and expected.env.id == "toy_envs:Counter-v0" and caplog.text == ""
    for text in ("", whole[:-9], "[]", "\0" * 100):
        config.write_text(text)
        caplog.clear()
        assert loaded() == expected
        assert len(caplog.records) == 1 and "final.safetensors is used" in caplog.text
    final.unlink()
    best.unlink()
    with pytest.raises(ConfigError, match=r"run: holds no run \(no config.json that can be read\)\.$"):
        loaded()


def started(folder: Path, *arguments: str, spawns: bool = True) -> Forked:
    """A training in a process group of its own, of which nothing is left afterwards."""
    return Forked("dqnspeed.train", *arguments, cwd=folder, env=environment(), spawns=spawns)


GPU_KINDS = [
    ["parallelism=process", *REPLAYED],
    ["parallelism=overlap", "execution.graph=true", *REPLAYED],
    ["algo=a3c", "num_envs=2", "parallelism.num_actors=2"],
    ["algo=ppo", *SMALL_PPO, "execution.graph=true"],
]


@pytest.mark.cuda
@pytest.mark.parametrize("kind", GPU_KINDS)
def test_a_run_on_a_gpu_goes_on_there_and_on_a_cpu(kind: list[str], tmp_path: Path) -> None:
    steps = 0
    for i, device in enumerate(("cuda", "cuda", "cpu")):
        line = [option for option in kind if device == "cuda" or option != "execution.graph=true"]
        run = make_run("env.id=CartPole-v1", *FAMILY, *line, f"device={device}", f"stop.max_steps={steps + 250}")
        state = go(tmp_path, run, resumed=i > 0)
        assert state["progress"]["agent_steps"] >= steps + 250 and state["learner"]["updates"] > 0
        assert all(np.isfinite(weights).all() for weights in state["learner"]["network"].values())
        steps = state["progress"]["agent_steps"]


def check_files(folder: Path, steps_per_episode: int) -> dict[str, Any]:
    """Check that the files of a run have no gaps and no repeated lines, and return the last report."""
    reports = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for earlier, later in itertools.pairwise(reports):
        for key in ("step", "time", "train/updates", "episode/count"):
            assert later.get(key, 0) >= earlier.get(key, 0), key
        assert later.get("train/epsilon", 0) <= earlier.get("train/epsilon", 1) + 1e-9
    rows = episodes(folder)
    assert [int(row["episode"]) for row in rows] == list(range(1, len(rows) + 1))
    times = [float(row["time"]) for row in rows]
    assert times == sorted(times)
    assert all(int(row["length"]) == steps_per_episode for row in rows)
    return reports[-1] if reports else {}


def newest_step(folder: Path) -> int:
    return max((int(path.stem[5:]) for path in folder.glob("checkpoints/step_*.safetensors")), default=-1)


KILLS = int(os.environ.get("DQNSPEED_KILLS", "1"))  # 20 for the long form of the test
EVERY_KIND = {
    "serial": ["parallelism=serial"],
    "overlap": ["parallelism=overlap"],
    "process, two actors": ["parallelism=process", "parallelism.num_actors=2", "parallelism.samples_per_step=16"],
    "rainbow, queue": ["algo=rainbow", "parallelism=process", "parallelism.transport=queue"],
    "a3c, two actors": ["algo=a3c", "parallelism.num_actors=2", "algo.batch_size=16"],
    "ppo, overlap": ["algo=ppo", "parallelism=overlap", "algo.batch_size=16", "algo.num_steps=32"],
    "ppo, process": ["algo=ppo", "parallelism=process", "algo.batch_size=16", "algo.num_steps=32"],
}


def go_on(tmp_path: Path, max_steps: int) -> State:
    """Resume ``run`` until ``max_steps``; returns the final state."""
    last = forked.run(
        "dqnspeed.train", "resume=run", f"stop.max_steps={max_steps}", cwd=tmp_path, env=environment(), timeout=100
    )
    assert last.returncode == 0, last.stderr
    return load(tmp_path / "run" / "checkpoints" / "final.safetensors")


@pytest.mark.parametrize("kind", mostly_integration(EVERY_KIND, "serial", "process, two actors"))
def test_killed_at_random_moments_a_run_goes_on_with_nothing_lost(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    toy = [*TOY, *EVERY_KIND[kind], "num_envs=2", "checkpoint.every_minutes=0.005", "checkpoint.replay=true",
           "tracking.report_every_s=0.05", "exploration.decay_steps=20000", "hydra.run.dir=run"]  # fmt: skip
    rng = random.Random(kind)
    arguments = toy
    kills = max(KILLS, 2) if kind == "serial" else KILLS  # one kind is always killed again after it was resumed
    for left in reversed(range(kills)):
        steps = newest_step(folder)
        with started(tmp_path, *arguments, spawns=False) as run:
            # Before the last kill something new is saved; others may come before the first step or checkpoint.
            if left == 0 or rng.random() < 0.8:
                run.wait_for(lambda steps=steps: newest_step(folder) > steps)
                time.sleep(rng.random() * 0.6)
            else:
                run.wait_for((folder / "metrics.jsonl").exists)
                time.sleep(rng.random() * 3)
            run.kill()
            assert "dqnspeed:" not in run.communicate()[1]
        arguments = ["resume=run"]

    found = newest(folder / "checkpoints")
    assert found is not None
    steps = found[1]["progress"]["agent_steps"]
    go_on(tmp_path, steps + 1000)
    report = check_files(folder, steps_per_episode=7)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["stopped_by"] == "max_steps" and summary["agent_steps"] == report["step"] >= steps + 1000
    assert summary["episodes"] == len(episodes(folder))
    assert summary["resumed_at"] == sorted(summary["resumed_at"])
    # Rows hold all agent steps, except steps of unfinished games and of games that a resumption cut off.
    played = sum(int(row["length"]) for row in episodes(folder))
    lanes = 4 if "two" in kind else 2
    assert 0 <= summary["agent_steps"] - played <= 7 * lanes * (len(summary["resumed_at"]) + 1)


@pytest.mark.parametrize("parallelism", mostly_integration(["overlap", "process"], "process"))
def test_ctrl_c_twice_leaves_at_once_without_harm(parallelism: str, tmp_path: Path) -> None:
    """A clean end after the first Ctrl-C would wait for the environment, which hangs."""
    hanging = ["env.id=toy_envs:Broken-v0", "env.kwargs={how: hang, folder: now}", "parallelism.timeout_s=100"]
    with started(
        tmp_path, *TOY, *hanging, f"parallelism={parallelism}", "hydra.run.dir=run", "checkpoint.every_minutes=0.001"
    ) as run:
        run.wait_for(lambda: newest_step(tmp_path / "run") > 0)
        (tmp_path / "now").mkdir()
        run.wait_for((tmp_path / "now" / "hangs").exists)
        for _ in range(2):
            time.sleep(0.5)  # two that come together are one
            os.killpg(run.pid, signal.SIGINT)
        _, errors = run.communicate(timeout=60)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["stopped_by"], summary["error"]) == ("SIGINT", None)
    assert run.returncode == 128 + signal.SIGINT and "Traceback" not in errors
    found = [*(tmp_path / "run").rglob("checkpoints/*")]
    assert found
    for path in found:
        load(path)  # whole


def test_a_run_interrupted_while_it_closes_its_processes_still_ends(tmp_path: Path) -> None:
    """Processes that were not asked to end ignore SIGTERM, and multiprocessing waits for them at its exit."""
    interrupted = """
from dqnspeed.actors.process import ProcessActors
from dqnspeed.cli import train
def close(self):
    raise KeyboardInterrupt
def main():
    ProcessActors.close = close
    train.main()
"""
    (tmp_path / "interrupted.py").write_text(interrupted)
    arguments = [*TOY, "parallelism=process", "num_envs=1", "stop.max_steps=50", "hydra.run.dir=run"]
    with Forked("interrupted", *arguments, cwd=tmp_path, env=environment()) as run:  # copies would not be deaf
        _, errors = run.communicate(timeout=150)
    assert (run.returncode, errors) == (128 + signal.SIGINT, "")


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_used(cli: Cli, tmp_path: Path) -> None:
    assert cli(*TOY, "hydra.run.dir=run", "stop.max_steps=900", "checkpoint.every_minutes=0.002").returncode == 0
    final = tmp_path / "run" / "checkpoints" / "final.safetensors"
    final.write_bytes(final.read_bytes()[:-100])
    before = newest(tmp_path / "run" / "checkpoints")
    assert before is not None and before[0].stem.startswith("step_")
    result = cli("resume=run", "stop.max_steps=1000")
    assert result.returncode == 0 and "final.safetensors is damaged" in result.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["resumed_at"] == [
        before[1]["progress"]["agent_steps"]
    ]
    check_files(tmp_path / "run", steps_per_episode=7)


def test_a_loss_that_is_not_finite_leaves_a_good_checkpoint_and_the_line_that_resumes(cli: Cli, tmp_path: Path) -> None:
    result = cli(*TOY, "hydra.run.dir=run", "stop.max_steps=600", "checkpoint.every_minutes=0.001")
    assert result.returncode == 0
    result = cli("resume=run", "stop.max_steps=200000", "optimizer.lr=1e30", "checkpoint.every_minutes=0.001")
    assert result.returncode == 1 and "is not finite" in result.stderr and "Traceback" not in result.stderr
    assert "To resume: " in result.stderr and "-m dqnspeed.train resume=run" in result.stderr
    found = newest(tmp_path / "run" / "checkpoints")
    assert found is not None
    assert all(np.isfinite(weights).all() for weights in found[1]["learner"]["network"].values())


def test_a_refused_resumption_is_one_sentence(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    assert cli(*TOY, "hydra.run.dir=run", "stop.max_steps=100").returncode == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    finished = "resume=run: this run is finished (stop.max_steps=100 was reached after 100 agent steps); raise"
    bad = {
        "resume=nowhere": "nowhere: there is no such folder.",
        f"resume={'x' * 300}": f"{'x' * 300}: cannot be looked into (File name too long).",
        "resume=empty": "empty: holds no run (no config.json that can be read).",
        "resume=run": finished,
        "resume=run num_envs=3": "num_envs: cannot be changed in a resumed run",
        "resume=run tracking=local": "tracking: cannot be changed in a resumed run",
        "resume=run stop.max_steps=-3": "stop.max_steps=-3: must be at least 1.",
        "resume=run stop.max_minutes=1,2": "stop.max_minutes=1,2: a run is resumed with one value, not with a sweep.",
        "resume=run -m": "-m: does not go with resume=",
        "resume=": "resume: name one folder of a run.",
    }
    monkeypatch.chdir(tmp_path)
    for line, sentence in bad.items():
        with pytest.raises(USER_ERRORS) as raised:
            resuming.prepare(line.split())
        assert explain(raised.value).startswith(sentence), explain(raised.value)
    result = cli("resume=run")
    assert result.returncode == 2 and result.stderr.startswith(f"dqnspeed: {finished}")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before

    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    solved = {**summary, "stopped_by": "reward_bound", "reward_bound": 17, "solved": True}
    (tmp_path / "run" / "summary.json").write_text(json.dumps(solved))
    with pytest.raises(ConfigError, match=r"this run is finished \(stop.reward_bound=17 was reached"):
        resuming.prepare(["resume=run", "stop.max_steps=300", "stop.reward_bound=17"])
    (tmp_path / "run" / "summary.json").write_text(json.dumps(summary))

    assert cli("resume=run", "stop.max_steps=200").returncode == 0
    resumed = resuming.prepare(["resume=run", "stop.max_steps=300"])  # an override of an earlier resume is kept
    assert [*resumed.overrides[-2:]] == ["stop.max_steps=200", "stop.max_steps=300"]
    assert json.loads((tmp_path / "run" / "config.json").read_text())["stop"]["max_steps"] == 200


def test_a_resumed_run_keeps_the_values_it_began_with_whatever_its_new_length(tmp_path: Path) -> None:
    keys = ["optimizer.lr_decay_steps", "replay.beta_updates", "algo.target_update_every", "eval.every_steps", "seed"]
    references = [f"{key}=${{stop.max_steps}}" for key in keys]
    began = compose(*TOY, "replay=prioritized", "stop.max_steps=1000", *references)
    signing.write(tmp_path / "config.json", OmegaConf.to_container(began, resolve=True))
    run = resuming.prepare([f"resume={tmp_path}", "stop.max_steps=100000"]).config
    assert run.stop.max_steps == 100_000
    assert {OmegaConf.select(OmegaConf.structured(run), key) for key in keys} == {1000}


def test_a_reference_that_is_typed_at_a_resume_is_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    began = compose(*TOY, "stop.max_steps=1000")
    signing.write(tmp_path / "config.json", OmegaConf.to_container(began, resolve=True))
    typed = ["optimizer.lr_decay_steps=${stop.max_steps}", "tracking.group=it_is_${seed}", "stop.max_steps=2000"]
    resumed = resuming.prepare([f"resume={tmp_path}", *typed])
    run, options = resumed.config, resumed.options
    assert (run.stop.max_steps, run.optimizer.lr_decay_steps, run.tracking.group) == (2000, 2000, "it_is_0")
    assert options["optimizer"]["lr_decay_steps"] == 2000 and resumed.overrides == typed and caplog.text == ""
    with pytest.raises(ConfigError, match=r"^replay\.buffer_size: cannot be changed in a resumed run"):
        resuming.prepare([f"resume={tmp_path}", "replay.buffer_size=${stop.max_steps}"])


def test_two_processes_never_go_on_with_the_same_run(cli: Cli, tmp_path: Path) -> None:
    with started(tmp_path, *TOY, "hydra.run.dir=run") as run:
        run.wait_for((tmp_path / "run" / "metrics.jsonl").exists)
        result = cli("resume=run")
        run.terminate()
        run.communicate(timeout=30)
    assert run.returncode == 128 + signal.SIGTERM
    assert result.returncode == 2 and "another process still writes there" in result.stderr
    check_files(tmp_path / "run", steps_per_episode=7)


def test_a_run_is_not_written_into_the_folder_of_a_sweep(tmp_path: Path) -> None:
    (tmp_path / SWEEP).touch()
    with pytest.raises(ConfigError, match=rf"^hydra\.run\.dir: {tmp_path} holds a sweep; name a new folder\.$"):
        check_folder_is_new("hydra.run.dir", tmp_path)
