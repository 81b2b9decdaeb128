"""A commit beside the working tree."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dqnspeed.bench import against
from dqnspeed.bench.pairs import Pace

TOY = ["env=cartpole", "wrappers=none", "model=mlp", "model.hidden=[8]"]


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with this package in its only commit, in place of this source tree's own."""
    root = tmp_path / "root"
    for name in ("dqnspeed", "conf"):
        shutil.copytree(against.ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    git(tmp_path, "init", "-q", str(root))
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    monkeypatch.setattr(against, "ROOT", root)
    return root


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command; returns its exit code and what it printed."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["against", *arguments])
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # which main() sets for this whole process
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.setattr(against.signal, "signal", lambda *_: None)
        code = 0
        try:
            against.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, *capsys.readouterr()

    return run


@pytest.mark.slow
def test_each_tree_runs_its_own_code(
    repository: Path, call: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    work = repository / "dqnspeed" / "bench" / "work.py"
    counted = "counter.event({BATCHES: count, BYTES: count * size})"
    assert counted in work.read_text()
    work.write_text(work.read_text().replace(counted, "counter.event({BATCHES: count / 1000, BYTES: count * size})"))
    pieces = against.Plan.pieces
    monkeypatch.setattr(
        against.Plan, "pieces", lambda plan: [one for one in pieces(plan) if one[0].name.startswith("sample")]
    )
    monkeypatch.setattr(against, "PACE", Pace(0.01, 0.05, min_pairs=4, max_pairs=4))
    code, shown, errors = call("base=HEAD", "fail_below=0.5", f"out={tmp_path / 'out.json'}", *TOY)
    assert code == 1, errors
    assert "fail_below=0.5: 1 of 1 fell below: replay: sample 32." in errors
    assert "slower" in shown
    found = against.results.read(tmp_path / "out.json")
    assert found.complete and found.measurements[0].ratio is not None and found.measurements[0].ratio.high < 0.01
    assert against.changes_in(dataclasses.replace(found, measurements=[])) == []
    for error, fell in {"the piece broke.": True, "its reference, HEAD: it broke.": False}.items():
        broken = dataclasses.replace(found.measurements[0], pairs=[], value=None, ratio=None, error=error)
        (change,) = against.changes_in(dataclasses.replace(found, measurements=[broken]))
        assert change.fell_below(0.5) is fell


def test_what_cannot_be_compared_is_refused_at_once(
    repository: Path, call: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "there.json").touch()
    git(repository, "rm", "-q", "--cached", against.CHILD)
    git(repository, "commit", "-qm", "second")
    for arguments, sentence in (
        (["base=nothing"], f"base=nothing: is no commit of {repository}."),
        (["base=--help"], f"base=--help: is no commit of {repository}."),
        (["base=HEAD"], f"base=HEAD: has no bench yet ({against.CHILD})."),
        (["base=HEAD~1", f"out={tmp_path / 'there.json'}"], f"out={tmp_path / 'there.json'}: must be a new file in"),
        (["base=HEAD~1", "algo=ppo"], "algo=ppo: has no replay"),
    ):
        code, shown, errors = call(*arguments)
        assert (code, shown, errors.count("\n")) == (2, "", 1)
        assert errors.startswith(f"dqnspeed: {sentence}")
    monkeypatch.setattr(against, "ROOT", tmp_path)
    code, _, errors = call()
    assert code == 2 and errors.startswith(f"dqnspeed: base=HEAD: {tmp_path} is no git repository; ")
