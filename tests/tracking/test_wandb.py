"""Weights & Biases, read back from its own files."""

from __future__ import annotations

import json
import re
import struct
import threading
import time
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import forked
import pytest
from conftest import TOY, Training, environment, make_toy

import dqnspeed
from dqnspeed.envs import Episode
from dqnspeed.tracking.run_folder import read_episodes, read_metrics, read_overrides, read_summary
from dqnspeed.tracking.wandb import WandB, overruled
from dqnspeed.training.state_file import load

WANDB_BLOCK = 32768  # bytes of its files, each written in such blocks as LevelDB does


def records(path: Path) -> dict[str, list[Any]]:
    """Records of a ``.wandb`` file by kind: protocol buffers in the log format of LevelDB."""
    from wandb.proto import wandb_internal_pb2

    found = defaultdict[str, list[Any]](list)
    data, position, record = path.read_bytes(), 7, b""
    while position + 7 <= len(data):
        if (rest := WANDB_BLOCK - position % WANDB_BLOCK) < 7:
            position += rest
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + 7])
        record += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            whole = wandb_internal_pb2.Record.FromString(record)
            kind_of_record = whole.WhichOneof("record_type")
            found[kind_of_record].append(getattr(whole, kind_of_record))
            record = b""
    return dict(found)


def ended(folder: Path) -> dict[str, list[Any]]:
    """The records of the run in ``folder``, once they are all written, by a process of W&B's."""
    deadline = time.monotonic() + 30
    while True:
        (file,) = folder.glob("wandb/offline-run-*/*.wandb")
        if "exit" in (found := records(file)):
            return found
        assert time.monotonic() < deadline
        time.sleep(0.05)


def rows_of(found: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [{"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in h.item} for h in found["history"]]


def summary_of(found: dict[str, list[Any]]) -> dict[str, Any]:
    """The last value of each key."""
    items = [item for summary in found["summary"] for item in summary.update]
    return {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with evaluations, films and a best checkpoint."""
    folder: Path = tmp_path_factory.mktemp("tracked")
    catch = ["env.id=toy_envs:Catch-v0", "env.reward_bound=null", "wrappers=none", "model=board", "model.hidden=[8]"]
    few = ["stop.max_steps=600", "eval.every_steps=300", "eval.episodes=2", "tracking.video_every=40"]
    wandb = ["tracking.report_every_s=0.1", "tracking.trackers=[wandb]", "execution.threads=1"]
    dqnspeed.train([*catch, *few, *wandb, "algo.learning_starts=40"], folder=folder)
    return folder


def test_wandb_has_every_metric_with_its_axis_and_every_value_once(tracked: Path) -> None:
    found, reports = ended(tracked), read_metrics(tracked)[0]
    names = {name for report in reports for name in report} - {"step", "time"}
    axes = {metric.name: metric for metric in found["metric"]}
    assert set(axes) - names == {"agent_step", "time/training_s", "video"}
    for metric in found["metric"]:
        of_clock = metric.name.startswith(("perf/", "time/"))
        is_axis = metric.name in ("agent_step", "time/training_s")
        assert metric.step_metric == ("" if is_axis else "time/training_s" if of_clock else "agent_step")
        assert metric.summary.max == (metric.name in ("episode/return_mean_100", "eval/return_mean"))
    rows = rows_of(found)
    assert all({"agent_step", "time/training_s"} <= set(row) for row in rows)
    for name in ("train/loss", "eval/return_mean", "perf/steps_per_second"):
        logged = [report[name] for report in reports if name in report]
        assert [row[name] for row in rows if name in row] == [pytest.approx(value, rel=1e-8) for value in logged]
    games = [row["episode/return"] for row in rows if "episode/return" in row]
    assert games == [episode["return"] for episode in read_episodes(tracked)[0]]


def test_every_metric_that_wandb_gets_is_in_the_documentation(tracked: Path) -> None:
    page = Path(__file__).parents[2].joinpath("docs", "reference", "run_folder.md").read_text()
    logged = {metric.name for metric in ended(tracked)["metric"]}
    documented = set(re.findall(r"`(\w+/\w+)`", page))
    assert {name for name in logged if not name.startswith(("time/", "agent_step", "video"))} <= documented


def test_a_run_of_wandb_says_what_it_is(tracked: Path) -> None:
    found, summary = ended(tracked), read_summary(tracked)
    (run,), (over,) = found["run"], found["exit"]
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config["algo"] == json.loads((tracked / "config.json").read_text())["algo"]
    assert not {"tracking", "checkpoint", "hydra"} & set(config)
    begin, end = run.display_name.rsplit(", ", 1)
    assert (
        summary["label"].startswith(begin.removesuffix(" …"))
        and len(begin) <= 120
        and end == "seed 0"
        and run.job_type == "train"
    )
    assert run.run_group == run.run_id == (tracked / "wandb" / "id.txt").read_text()
    assert set(run.tags) == {"baseline", config["algo"]["name"], "cpu", *summary["kind"]}
    assert "-m dqnspeed.train env.id=toy_envs:Catch-v0 " in run.notes and run.notes.endswith(
        read_overrides(tracked)[-1]
    )
    assert over.exit_code == 0
    told = summary_of(found)
    assert told["stopped_by"] == "max_steps" and told["return_mean_100"] == summary["return_mean_100"]
    assert set(told["episode/return_mean_100"]) == {"max"}


def test_films_and_the_best_checkpoint_are_there_with_their_steps(tracked: Path) -> None:
    found = ended(tracked)
    films = [row for row in rows_of(found) if "video/path" in row]
    filmed = [episode for episode in read_episodes(tracked)[0] if episode["video"]]
    assert films and [row["agent_step"] for row in films] == [episode["agent_step"] for episode in filmed]
    for row, episode in zip(films, filmed, strict=True):
        (copied,) = tracked.glob(f"wandb/offline-run-*/files/{row['video/path']}")
        assert copied.read_bytes() == (tracked / episode["video"]).read_bytes()
    (artifact,) = [artifact for artifact in found["artifact"] if artifact.type == "model"]
    (entry,) = artifact.manifest.contents
    best = load(tracked / "checkpoints" / "best.safetensors")["progress"]
    assert entry.path == "best.safetensors"
    assert Path(entry.local_path).read_bytes() == (tracked / "checkpoints" / "best.safetensors").read_bytes()
    facts = json.loads(artifact.metadata)
    assert (facts["agent_step"], facts["return_mean"]) == (best["agent_steps"], best["return_mean"])


def test_what_a_kill_left_of_a_checkpoint_is_not_sent(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "best.safetensors.partial").write_text("cut")
    tracker, training = WandB(), Training(make_toy("tracking.wandb=offline"), tmp_path)
    tracker.on_training_start(training)
    tracker.on_training_end(training, {"stopped_by": "max_steps", "not_written": []})
    assert "artifact" not in ended(tmp_path)


@pytest.mark.parametrize(
    ("reason", "not_written", "code"),
    [("error", [], 1), ("SIGTERM", [], 143), ("max_steps", ["summary.json"], 1)],
)
def test_wandb_logs_a_game_once_and_its_exit_code(
    reason: str, not_written: list[str], code: int, tmp_path: Path
) -> None:
    tracker = WandB()
    training = Training(make_toy("tracking.wandb=offline"), tmp_path, name="baseline num_envs=2, seed 0")
    tracker.on_training_start(training)
    for step in (10, 20):
        training.agent_steps, training.seconds = step, 1.0
        tracker.on_episode_end(training, step // 10, Episode(0, float(step), 7))
        for later in (1, 2, 3):
            training.agent_steps, training.seconds = step + later, 2.0
            tracker.on_report(training, {"episode/return": step, "episode/length": 7, "train/loss": later})
    tracker.on_training_end(training, {"stopped_by": reason, "not_written": not_written, "error": "it died"})
    found = ended(tmp_path)
    assert [run.display_name for run in found["run"]] == ["baseline num_envs=2, seed 0"]
    rows = rows_of(found)
    assert [row["episode/return"] for row in rows if "episode/return" in row] == [10, 20]
    assert [row["train/loss"] for row in rows if "train/loss" in row] == [1, 2, 3] * 2
    assert [over.exit_code for over in found["exit"]] == [code]
    values = summary_of(found)
    assert (values["stopped_by"], values["error"]) == (reason, "it died")


@pytest.mark.parametrize(
    ("variables", "override", "mode", "line"),
    [
        ({}, [], "offline", None),
        ({"WANDB_MODE": "online"}, [], "online", None),
        ({"WANDB_MODE": "disabled"}, [], "disabled", None),
        ({"WANDB_DISABLED": "true", "WANDB_MODE": "online"}, [], "disabled", None),
        ({"WANDB_MODE": "disabled"}, ["tracking.wandb=disabled"], "disabled", None),
        ({"WANDB_MODE": "disabled"}, ["tracking.wandb=offline"], "offline", "WANDB_MODE=disabled"),
        ({"WANDB_DISABLED": "true"}, ["tracking.wandb=online"], "online", "WANDB_DISABLED=true"),
    ],
)
def test_the_environment_says_where_wandb_goes_unless_an_option_does(
    variables: dict[str, str], override: list[str], mode: str, line: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WANDB_MODE", "WANDB_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    tracking = dqnspeed.compose([*TOY[:5], *override]).tracking
    assert tracking.wandb == mode
    told = [] if line is None else [f"tracking.wandb={mode}: overrules {line} of the environment."]
    assert list(overruled(tracking)) == told


def test_an_option_overrules_the_environment_for_wandb_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setenv("WANDB_DISABLED", "true")
    names = ["tracking.project=p", "tracking.group=g", "tracking.run_name=r"]
    tracker, training = WandB(), Training(make_toy("tracking.wandb=offline", *names), tmp_path)
    tracker.on_training_start(training)
    tracker.on_training_end(training, {"stopped_by": "max_steps", "not_written": []})
    [run] = ended(tmp_path)["run"]
    assert (run.project, run.run_group, run.display_name) == ("p", "g", "r")


class Refuses(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_error(401)

    def do_GET(self) -> None:
        self.send_error(401)


TWO_JOBS = """
from pathlib import Path
import dqnspeed
from conftest import Training
from dqnspeed.tracking.wandb import WandB
def main():
    run = dqnspeed.compose(["tracking.wandb=online"])
    for name in ("first", "second"):
        Path(name).mkdir()
        tracker, training = WandB(), Training(run, Path(name).absolute())
        tracker.on_training_start(training)
        tracker.on_training_end(training, {"stopped_by": "max_steps", "not_written": []})
"""


@pytest.mark.parametrize("why", ["timed out", "returned error 401", "No API key configured"])
def test_a_wandb_that_cannot_be_used_is_asked_once_and_the_runs_are_kept_offline(why: str, tmp_path: Path) -> None:
    """A server that takes connections and never says a word; one that refuses the key; and no key at all."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refuses)
    if why != "timed out":
        threading.Thread(target=server.serve_forever, daemon=True).start()
    own = {"WANDB_BASE_URL": f"http://127.0.0.1:{server.server_port}", "HOME": str(tmp_path), "no_proxy": "127.0.0.1"}
    if not why.startswith("No API key"):
        own["WANDB_API_KEY"] = "x" * 40
    (tmp_path / "two_jobs.py").write_text(TWO_JOBS)
    result = forked.run("two_jobs", cwd=tmp_path, env={**environment(), **own}, timeout=100)
    if why == "timed out":  # of the two runs the first alone asks
        server.socket.settimeout(0.1)
        server.socket.accept()[0].close()
        with pytest.raises(TimeoutError):
            server.socket.accept()
    server.server_close()
    assert result.returncode == 0, result.stderr
    lines = result.stderr.splitlines()
    assert len(lines) == 2 and len(set(lines)) == 1, lines
    assert lines[0].startswith("tracking.wandb=online: W&B cannot be used (") and why in lines[0]
    assert lines[0].endswith("); this run is kept offline.")
    assert len(list(tmp_path.glob("*/wandb/offline-run-*/*.wandb"))) == 2
