"""The ways in: ``dqnspeed COMMAND``, completion in a shell, and the targets of the Makefile."""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import forked
import pytest
from conftest import TOY, Command, environment
from omegaconf import OmegaConf

from dqnspeed.cli import main
from dqnspeed.cli.app import run_app
from dqnspeed.cli.schemas import CONF_DIR
from dqnspeed.system import messages
from dqnspeed.system.startup import PARTS

ROOT = Path(CONF_DIR).parent


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_every_command_is_listed_with_a_line(arguments: list[str], run_here: Command) -> None:
    code, shown, errors = run_here(main, *arguments)
    listed = re.findall(r"^  dqnspeed (\w+) +\w.+$", shown, re.M)
    assert (code, errors) == (0, "") and listed == list(main.COMMANDS)
    scripts = re.findall(r'^dqnspeed-(\w+) = "dqnspeed\.', (ROOT / "pyproject.toml").read_text(), re.M)
    assert sorted(scripts) == sorted(listed)
    assert all(callable(importlib.import_module(main.module_of(name)).main) for name in listed)


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("trian", "trian: is no command (nearest: train); choose one of train, play, publish, "),
        ("experiment=speedrun", "experiment=speedrun: is no command; choose one of train, play, publish, "),
    ],
)
def test_an_unknown_command_is_one_sentence(word: str, sentence: str, run_here: Command) -> None:
    code, shown, errors = run_here(main, word, "seed=1")
    assert (code, shown) == (2, "") and errors.startswith(f"dqnspeed: {sentence}") and errors.count("\n") == 1
    assert ("as in dqnspeed train KEY=VALUE" in errors) == ("=" in word)


def test_a_command_gets_its_own_arguments(run_here: Command) -> None:
    code, _, errors = run_here(main, "play", "episode=3")
    assert code == 2 and errors.startswith("dqnspeed: episode=3: is no option (nearest: episodes); ")


def test_a_sign_that_a_terminal_does_not_have_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", shown)
    monkeypatch.setattr("sys.argv", ["dqnspeed-play"])
    run_app(lambda: print("1.5 – 1.7×"))
    shown.seek(0)
    assert shown.read() == "1.5 ? 1.7?\n"


@pytest.mark.slow
def test_the_script_trains_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "dqnspeed"  # as pip writes it
    script.write_text("from dqnspeed.cli.main import main\nif __name__ == '__main__':\n    main()\n")
    line = [*TOY, "parallelism=process", "stop.max_steps=60"]
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, str(script), "train", *line, "hydra.run.dir=it"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    elapsed = time.perf_counter() - begun
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "it" / "summary.json").read_text())
    seconds = summary["startup"]
    assert tuple(seconds) == PARTS and seconds["random_play"] == 0  # there is no crop
    assert all(seconds[part] > 0 for part in ("imports", "composition", "actors"))
    assert sum(seconds.values()) + summary["wall_time_s"] < elapsed
    assert f"samples/step, after {sum(seconds.values()):.0f} s of start-up\n" in done.stdout
    assert OmegaConf.load(tmp_path / "it" / ".hydra" / "hydra.yaml").hydra.job.name == "train"
    assert f"\nwatch it:        {messages.command('play', 'run=it')}\n" in done.stdout
    assert done.stdout.endswith(f"\ntry other seeds: {messages.command('train', '-m', *line, 'seed=1,2,3')}\n")
    more = ["train", "resume=it", "stop.max_steps=120"]
    done = forked.run("dqnspeed.cli.main", *more, cwd=tmp_path, env=environment(), timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "it" / "summary.json").read_text())["agent_steps"] >= 120


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("experiment=speedrun_a", "experiment=speedrun_a3c"), ("algo=ppo algo.normal", "algo.normalize_advantage=")],
)
def test_a_shell_completes_overrides(typed: str, completed: str, tmp_path: Path) -> None:
    line = f"dqnspeed-train {typed}"
    env = {**environment(), "COMP_LINE": line, "COMP_POINT": str(len(line))}
    done = forked.run("dqnspeed.cli.train", "-sc", "query=bash", cwd=tmp_path, env=env, timeout=120)
    assert done.returncode == 0 and completed in done.stdout.split(), done.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["train"], "train experiment=speedrun"),
        (["train", "ARGS=-m seed=1,2"], "train -m seed=1,2 experiment=speedrun"),
        (["train", "ARGS=experiment=ppo seed=1"], "train experiment=ppo seed=1"),
        (["train", "ARGS=resume=outputs/it"], "train resume=outputs/it"),
        (["train", "ARGS=sweep=ladder"], "train sweep=ladder"),
        (["play", "ARGS=record=true"], "play record=true"),
        (["report", "ARGS=outputs out=a"], "report outputs out=a"),
    ],
)
def test_make_calls_the_commands(words: list[str], command: str) -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # make test runs this
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, env=plain, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split()[1:] == ["-m", *f"dqnspeed.{command}".split()]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_commands_it_prints_run_where_they_are_printed(tmp_path: Path) -> None:
    """Also in a folder whose virtual environment is not active, as after ``make train``."""
    bin_, other = tmp_path / "of mine" / "bin", tmp_path / "other"
    for folder, names in ((bin_, ["python", "python3"]), (other, ["python"])):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).symlink_to(sys.executable)
    code = "import sys; from dqnspeed.system import messages; print(messages.command('play', 'run=a b'))"
    for path, executable, shown in (
        (bin_, bin_ / "python3", "python"),
        (other, bin_ / "python3", "'of mine/bin/python3'"),
        (tmp_path, bin_ / "python", "'of mine/bin/python'"),
    ):
        env = {**environment(), "PATH": str(path), "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([executable, "-S", "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.stdout == f"{shown} -m dqnspeed.play 'run=a b'\n", done.stderr
