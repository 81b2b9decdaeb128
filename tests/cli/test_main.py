"""The ways in: ``dqnspeed COMMAND``, completion in a shell, and the targets of the Makefile."""

from __future__ import annotations

import importlib
import io
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import forked
import pytest
from conftest import TOY, environment, make_run
from omegaconf import OmegaConf

from dqnspeed.cli import main
from dqnspeed.cli.app import run_app
from dqnspeed.cli.schemas import CONF_DIR
from dqnspeed.cli.train import _next, _print_result
from dqnspeed.system import messages

ROOT = Path(CONF_DIR).parent


def run_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    """Exit code, output and complaints of ``dqnspeed ARGUMENT...``."""
    monkeypatch.setattr(sys, "argv", ["dqnspeed", *arguments])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # which a command sets for this whole process
    code = 0
    try:
        main.main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    return code, *capsys.readouterr()


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_every_command_is_listed_with_a_line(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown, errors = run_here(monkeypatch, capsys, *arguments)
    listed = re.findall(r"^  dqnspeed (\w+) +\w.+$", shown, re.M)
    assert (code, errors) == (0, "") and listed == list(main.COMMANDS)
    scripts = re.findall(r'^dqnspeed-(\w+) = "dqnspeed\.', (ROOT / "pyproject.toml").read_text(), re.M)
    assert sorted(scripts) == sorted(listed)
    assert all(callable(importlib.import_module(f"dqnspeed.{name}").main) for name in listed)


def test_its_version_is_that_of_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    versions = {run_here(monkeypatch, capsys, *words) for words in (["--version"], ["play", "--version"])}
    assert len(versions) == 1
    ((code, shown, errors),) = versions
    assert (code, errors) == (0, "") and re.fullmatch(r"dqnspeed \S+ \(hydra 1\.\S+, torch 2\.\S+\)\n", shown)


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("trian", "trian: is no command (nearest: train); choose one of train, play, report, bench, doctor, options."),
        ("--resume", "--resume: is no command; choose one of train, play, report, bench, doctor, options."),
        (
            "experiment=speedrun",
            "experiment=speedrun: is no command; choose one of train, play, report, bench, doctor, options; overrides "
            "come after a command, as in dqnspeed train KEY=VALUE.",
        ),
    ],
)
def test_a_command_that_is_none_is_one_sentence(
    word: str, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here(monkeypatch, capsys, word, "seed=1") == (2, "", f"dqnspeed: {sentence}\n")


def test_a_command_gets_its_own_arguments(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, errors = run_here(monkeypatch, capsys, "play", "episode=3")
    assert code == 2 and errors.startswith("dqnspeed: episode=3: is no option (nearest: episodes); ")


@pytest.mark.parametrize(
    ("evaluated", "told"),
    [(False, "12.30 over the last 100 games"), (True, "18.00 over the games of the last evaluation")],
)
def test_the_mean_that_is_told_is_the_one_that_counts(
    evaluated: bool, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = {
        "episodes": 100,
        "agent_steps": 5,
        "steps_per_second": 1.0,
        "updates_per_second": 1.0,
        "samples_per_step": 8.0,
    }
    means = {"return_mean_100": 12.3, "return_mean_games": 100, "eval_return_mean": 18.0}
    ended = {"label": "a", "stopped_by": "reward_bound", "solved": True, "time_to_solve_s": 500.0}
    without = {"evaluations": 0, "eval_time_s": 0.0}
    summary = {
        **numbers,
        **means,
        **ended,
        **without,
        "time_is_lower_bound": False,
        "steps_over_limit": 0,
        "startup": {},
    }
    _print_result(summary, Path("run"), evaluated)
    assert f"mean return {told}" in (out := capsys.readouterr().out) and out.startswith("a: solved in 500 s; ")
    with_evaluations = {"time_to_solve_s": 7.85, "eval_time_s": 237.2, "evaluations": 4992}
    _print_result({**summary, **with_evaluations}, Path("run"), evaluated)
    assert capsys.readouterr().out.startswith("a: solved in 8 s of training, 245 s with 4,992 evaluations; ")


def test_a_sign_that_a_terminal_does_not_have_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", shown)
    monkeypatch.setattr("sys.argv", ["dqnspeed-play"])
    run_app(lambda: print("1.5 – 1.7×"))
    shown.seek(0)
    assert shown.read() == "1.5 ? 1.7?\n"


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scripts that an installation writes."""
    folder = tmp_path_factory.mktemp("bin")
    for name, module in (("dqnspeed", "dqnspeed.cli.main"), ("dqnspeed-train", "dqnspeed.cli.train")):
        script = f"import sys\nfrom {module} import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
        (folder / name).write_text(f"#!{sys.executable}\n{script}")
        (folder / name).chmod(0o755)
    return folder


def test_it_trains_with_actor_processes_and_resumes(
    scripts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def train(*overrides: str) -> str:
        done = subprocess.run(
            [str(scripts / "dqnspeed"), "train", *overrides],
            cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    shown = train(*TOY, "parallelism=process", "stop.max_steps=60", "hydra.run.dir=it")
    assert OmegaConf.load(tmp_path / "it" / ".hydra" / "hydra.yaml").hydra.job.name == "train"
    assert shown.endswith(
        f"watch it:        {messages.command('play', 'run=it')}\n"
        f"see its numbers: {messages.command('report', 'it')}\n"
        f"try other seeds: "
        f"{messages.command('train', '-m', *TOY, 'parallelism=process', 'stop.max_steps=60', 'seed=1,2,3')}\n"
    )
    more = ["train", "resume=it", "stop.max_steps=120"]
    done = forked.run("dqnspeed.cli.main", *more, cwd=tmp_path, env=environment(), timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "it" / "summary.json").read_text())["agent_steps"] >= 120


def test_what_comes_next_repeats_the_run_s_own_overrides(tmp_path: Path) -> None:
    folder = tmp_path / "of mine"
    lines = list(_next(folder, ["experiment=ppo", "seed=3", "env.kwargs={a: 1}", "num_envs=2", "num_envs=4"]))
    sweep = ["experiment=ppo", "env.kwargs={a: 1}", "num_envs=4"]
    assert lines == [
        f"see its numbers: {messages.command('report', str(folder))}",
        f"try other seeds: {messages.command('train', '-m', *sweep, 'seed=1,2,3')}",
    ]
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "final.safetensors").touch()
    assert next(_next(folder, [])) == f"watch it:        {messages.command('play', f'run={folder}')}"


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_overrides(scripts: Path, tmp_path: Path) -> None:
    env = {**environment(), "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "PS1": "$ ", "TERM": "dumb"}
    master, slave = pty.openpty()
    with subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        cwd=tmp_path, env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
    ) as bash:  # fmt: skip
        try:
            os.write(master, b'eval "$(dqnspeed-train -sc install=bash)"\n')
            os.write(master, b"echo rea''dy\n")
            read_until(master, "ready\r\n")
            for typed, completed in {
                "dqnspeed-train experiment=speedrun_a": "experiment=speedrun_a3c",
                "dqnspeed-train algo=ppo algo.normal": "algo.normalize_advantage=",
            }.items():
                os.write(master, f"{typed}\t".encode())
                read_until(master, completed)
                os.write(master, b"\x15")  # empties the line
        finally:
            bash.kill()
            os.close(slave)
            os.close(master)


def read_until(terminal: int, text: str) -> None:
    seen, deadline = "", time.monotonic() + 60
    while text not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([terminal], [], [], 1)[0]:
            seen += os.read(terminal, 4096).decode()


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["train"], "train experiment=speedrun"),
        (["train", "ARGS=stop.max_minutes=9 seed=1"], "train experiment=speedrun stop.max_minutes=9 seed=1"),
        (["train", "ARGS=-m seed=1,2"], "train -m seed=1,2 experiment=speedrun"),
        (["train", "ARGS=experiment=ppo seed=1"], "train experiment=ppo seed=1"),
        (["train", "ARGS=resume=outputs/it"], "train resume=outputs/it"),
        (["train", "ARGS=sweep=ladder"], "train sweep=ladder"),
        (["train", "ARGS=sweep=games"], "train experiment=speedrun sweep=games"),
        (["play"], "play"),
        (["play", "ARGS=record=true"], "play record=true"),
        (["report"], "report"),
        (["report", "ARGS=outputs out=a"], "report outputs out=a"),
    ],
)
def test_make_calls_the_commands(words: list[str], command: str) -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # make test runs this
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, env=plain, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split()[1:] == ["-m", *f"dqnspeed.{command}".split()]
    if command.startswith("train experiment="):
        make_run(*command.split()[1:])


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
