"""A commit beside the working tree."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import compare_commits
import pytest

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
        shutil.copytree(compare_commits.ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    git(tmp_path, "init", "-q", str(root))
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    monkeypatch.setattr(compare_commits, "ROOT", root)
    return root


@pytest.mark.slow
def test_each_tree_runs_its_own_code(
    repository: Path, script: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = repository / "dqnspeed" / "bench" / "work.py"
    counted = "counter.event({BATCHES: count, BYTES: count * size})"
    assert counted in work.read_text()
    work.write_text(work.read_text().replace(counted, "counter.event({BATCHES: count / 1000, BYTES: count * size})"))
    pieces = compare_commits.Plan.pieces
    monkeypatch.setattr(
        compare_commits.Plan, "pieces", lambda plan: [one for one in pieces(plan) if one[0].name.startswith("sample")]
    )
    monkeypatch.setattr(compare_commits, "PACE", Pace(0.01, 0.05, min_pairs=5, max_pairs=5))
    code, shown, errors = script(compare_commits, "base=HEAD", "fail_below=0.01", *TOY)
    assert code == 1, errors
    assert "fail_below=0.01: 1 of 1 fell below: replay: sample 32." in errors
    assert "slower" in shown


def test_what_cannot_be_compared_is_refused_at_once(
    repository: Path, script: Callable[..., tuple[int, str, str]]
) -> None:
    for arguments, sentence in (
        (["base=nothing"], "base=nothing: git cannot read it ("),
        (["algo=ppo"], "algo=ppo: has no replay"),
    ):
        code, shown, errors = script(compare_commits, *arguments)
        assert (code, shown, errors.count("\n")) == (2, "", 1)
        assert errors.startswith(f"dqnspeed: {sentence}")
