"""Sweeps whose jobs another engine runs: submitit's queue, and Ray."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import TOY, Cli, composed, environment, has_reported
from forked import Forked

from dqnspeed.cli.ray_jobs import check_launcher
from dqnspeed.config.options import ConfigError

pytestmark = pytest.mark.integration

SWEEP = ["-m", *TOY, "seed=1,2"]


def started(folder: Path, *overrides: str) -> Forked:
    """A sweep, of whose session nothing runs after the block."""
    arguments = [*SWEEP, f"hydra.sweep.dir={folder}", *overrides]
    return Forked("dqnspeed.train", *arguments, cwd=folder.parent, env=environment())


def tasks_of(process: Forked, words: str) -> list[psutil.Process]:
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if words in " ".join(child.cmdline())]


def summaries(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / job / "summary.json").read_text()) for job in ("0", "1")]


def test_a_preempted_submitit_job_is_requeued_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "sweep"
    monkeypatch.setenv("TOY_SLEEP_S", "0.02")  # they run for a while, and need not keep the cores busy
    slow = ["env.id=toy_envs:Elsewhere-v0", "stop.max_minutes=0.2"]
    with started(folder, "hydra/launcher=submitit_local", *slow) as process:
        process.wait_for(has_reported(folder / "0"))
        process.wait_for(has_reported(folder / "1"))
        for task in tasks_of(process, "submitit.core._submit"):
            task.send_signal(signal.SIGUSR2)
        out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    for summary in summaries(folder):
        assert summary["stopped_by"] == "max_minutes" and len(summary["resumed_at"]) == 1
        assert summary["benchmark"] is False
    logs = "".join(path.read_text() for path in folder.rglob("*_log.*"))
    assert len(re.findall("^submitit INFO .*Requeued job", logs, re.MULTILINE)) == 2
    assert out.count("at its limit") == 2


def test_the_jobs_of_a_sweep_are_tasks_of_rays_which_ctrl_c_saves(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    ray = ["hydra/launcher=ray", "hydra.launcher.cpus_per_job=1", "stop.max_steps=1500,10000000", "seed=1"]
    with started(folder, *ray) as process:
        process.wait_for((folder / "0" / "summary.json").exists)
        process.wait_for(has_reported(folder / "1"))
        tasks = tasks_of(process, "ray::_run")
        assert tasks
        os.kill(process.pid, signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert [summary["stopped_by"] for summary in summaries(folder)] == ["max_steps", "SIGINT"]
    assert (folder / "1" / "checkpoints" / "final.safetensors").exists()
    assert "at its limit" in out and "ended" in out and "sweep.resume=" in out
    assert psutil.wait_procs(tasks, timeout=20)[1] == []


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("hydra.launcher.gpus_per_job=9", "hydra.launcher.gpus_per_job=9: this machine has "),
        ("+hydra.launcher.cpu_per_job=2", "hydra.launcher.cpu_per_job: there is no such option (nearest: cpus_per_job"),
        ("hydra.launcher.address='127.0.0.1:9'", "hydra.launcher.address=127.0.0.1:9: nobody answers there"),
    ],
)
def test_what_cannot_be_launched_is_one_sentence(override: str, sentence: str) -> None:
    with composed("hydra/launcher=ray", override) as (cfg, _), pytest.raises(ConfigError) as error:
        check_launcher(cfg.hydra.launcher)
    assert str(error.value).startswith(sentence)


def test_what_cannot_be_launched_is_refused_before_anything_is_made(cli: Cli, tmp_path: Path) -> None:
    done = cli(*SWEEP, "hydra/launcher=ray", "parallelism=ray")
    assert done.returncode == 2 and done.stderr.startswith("dqnspeed: parallelism=ray: joins a cluster, which a job of")
    assert done.stderr.count("\n") == 1 and list(tmp_path.iterdir()) == []
