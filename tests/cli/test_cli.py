"""Features that all commands share: new folders, modules of the working folder, versions and output."""

from __future__ import annotations

import datetime
import importlib
import json
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import TOY, Cli, Command, command, environment
from forked import Forked
from hydra.errors import MissingConfigException
from omegaconf import OmegaConf

from dqnspeed.cli.errors import explain
from dqnspeed.cli.main import COMMANDS, module_of
from dqnspeed.cli.preflight import output_folder
from dqnspeed.config.options import ConfigError
from dqnspeed.training.folder_lock import new_folder

FEW = [*TOY, "stop.max_steps=60"]
SWEEP = ["-m", "num_envs=1,2"]


@pytest.mark.parametrize(("named", "is_named"), [("outputs/today/now", False), ("outputs/run", True)])
def test_a_dangling_link_is_named(named: str, is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("outputs").symlink_to("gone")
    overrides = [f"hydra.run.dir={named}"] if is_named else []
    config = OmegaConf.create({"hydra": {"run": {"dir": named}, "overrides": {"hydra": overrides}}})
    refused = rf"^hydra\.run\.dir={named}: cannot be made \(outputs is a link to gone, .* remove the link\)\.$"
    with pytest.raises(ConfigError, match=refused), output_folder(config, "run"):
        pass


@pytest.mark.parametrize("kind", [["hydra.run.dir=it"], [*SWEEP, "hydra.sweep.dir=it"]])
def test_of_two_runs_started_in_one_folder_the_second_changes_nothing(kind: list[str], tmp_path: Path) -> None:
    both = [Forked("dqnspeed.train", *kind, *FEW, f"seed={seed}", cwd=tmp_path, env=environment()) for seed in (1, 2)]
    with both[0], both[1]:
        errors = [run.communicate(timeout=120)[1] for run in both]
    assert sorted(str(run.returncode) for run in both) == ["0", "2"], errors
    loser = [run.returncode for run in both].index(2)
    assert re.search(r"^dqnspeed: .*\bit\b.*; name a new folder\.\n\Z", errors[loser], re.M)
    for folder in [tmp_path / "it"] if "-m" not in kind else [tmp_path / "it" / "0", tmp_path / "it" / "1"]:
        summary = json.loads((folder / "summary.json").read_text())
        assert OmegaConf.load(folder / ".hydra" / "config.yaml").seed == summary["seed"] == 2 - loser


@pytest.mark.parametrize("kind", ["outputs", "multirun"])
def test_a_default_folder_that_exists_is_left_alone(kind: str, cli: Cli, tmp_path: Path) -> None:
    now = datetime.datetime.now()
    seconds = [now + datetime.timedelta(seconds=s) for s in range(180)]
    taken = [tmp_path / kind / f"{second:%Y-%m-%d}" / f"{second:%H-%M-%S}" for second in seconds]
    for folder in taken:  # as if another run had begun in whichever second this one begins in
        folder.mkdir(parents=True)
        if kind == "outputs":
            (folder / "metrics.jsonl").touch()
    result = cli(*(SWEEP if kind == "multirun" else []), *FEW)
    assert result.returncode == 0, result.stderr
    assert all(file.name == "metrics.jsonl" and not file.stat().st_size for f in taken for file in f.iterdir())
    assert len(list(tmp_path.rglob("summary.json"))) == (1 if kind == "outputs" else 2)


def test_no_two_are_given_the_same_new_folder(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(new_folder, [tmp_path / "deep" / "it"] * 40))
    assert sorted(made) == sorted((tmp_path / "deep").iterdir()) and len(set(made)) == 40
    assert {tmp_path / "deep" / name for name in ("it", "it_2", "it_40")} <= set(made)


@pytest.mark.parametrize("name", ["dqnspeed.cli.main", *map(module_of, COMMANDS)])
def test_every_command_prints_its_version(name: str, run_here: Command) -> None:
    code, shown, errors = run_here(importlib.import_module(name), "--version")
    assert (code, errors) == (0, "") and re.fullmatch(r"dqnspeed \S+ \(hydra 1\.\S+, torch 2\.\S+\)\n", shown)


@pytest.mark.integration
def test_a_run_whose_warnings_are_errors_ends_well(tmp_path: Path) -> None:
    line = ["parallelism=overlap", "wrappers.stack=2", "eval.every_steps=30", "checkpoint.replay=true"]
    result = subprocess.run(
        command(*FEW, *line, "hydra.run.dir=run"),
        cwd=tmp_path, env={**environment(), "PYTHONWARNINGS": "error"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "run" / "checkpoints" / "final.safetensors").is_file()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("line", "end", "code", "reason"),
    [
        ("--help", "> /dev/full", 1, "No space left on device"),
        ("--help", ">&-", 1, "it is closed"),
        ("--help", "| true", 0, ""),
        pytest.param("train sweep.dry_run=true", "> /dev/full", 1, "No space", marks=pytest.mark.integration),
        pytest.param(" ".join(["train", *FEW]), "> /dev/full", 0, "", marks=pytest.mark.integration),
    ],
)
def test_a_command_fails_if_its_output_is_lost(line: str, end: str, code: int, reason: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", "from dqnspeed.cli.main import main; main()", *line.split()]
    shell = ["bash", "-c", f"{shlex.join(words)} {end}; exit ${{PIPESTATUS[0]}}"]
    done = subprocess.run(shell, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True, timeout=120)
    told = f"dqnspeed: standard output: could not be written ({reason}" if code else ""
    assert done.returncode == code and done.stderr.startswith(told) and done.stderr.count("\n") == code


def test_output_may_go_to_the_terminal_alone(cli: Cli, tmp_path: Path) -> None:
    told = "replay.buffer_size=3"  # without effect here, and the log says so
    result = cli(*TOY, "algo=ppo", told, "hydra/job_logging=stdout", "stop.max_steps=50", "hydra.run.dir=run")
    assert result.returncode == 0 and f"{told}: does nothing with algo=ppo" in result.stdout, result.stderr
    assert not list((tmp_path / "run").glob("*.log"))


def test_the_extra_of_a_launcher_is_named() -> None:
    error = MissingConfigException("", "hydra/launcher/submitit_slurm", ["basic"])
    assert "pip install 'dqnspeed[slurm]' brings it." in explain(error)
