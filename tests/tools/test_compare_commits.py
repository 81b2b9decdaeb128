"""The comparison of the working tree with a commit."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import compare_commits
import pytest
from conftest import Command

from dqnspeed.bench.pairs import SamplingPlan

TOY = ["env=cartpole", "wrappers=none", "model=mlp", "model.hidden=[8]"]


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with this package in its only commit."""
    root = tmp_path_factory.mktemp("repository") / "root"
    for name in ("dqnspeed", "conf"):
        shutil.copytree(compare_commits.ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    return root


@pytest.fixture
def repository(committed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository in place of the one with this source tree."""
    monkeypatch.setattr(compare_commits, "ROOT", committed)
    return committed


@pytest.mark.integration
def test_each_tree_runs_its_own_code(repository: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    workloads = repository / "dqnspeed" / "bench" / "workloads.py"
    counted = "counter.event({BATCHES: count})"
    text = workloads.read_text()
    assert counted in text
    workloads.write_text(text.replace(counted, counted.replace("BATCHES: count", "BATCHES: count / 1000")))
    parts = compare_commits.Plan.parts
    monkeypatch.setattr(
        compare_commits.Plan, "parts", lambda plan: (piece for piece in parts(plan) if piece.name.startswith("sample"))
    )
    monkeypatch.setattr(compare_commits, "SAMPLING", SamplingPlan(0.01, 0.05, num_pairs=5))
    code, shown, errors = run_here(compare_commits, "base=HEAD", "fail_below=0.01", *TOY)
    assert code == 1, errors
    assert "fail_below=0.01: 1 of 1 fell below: replay: sample 32." in errors
    assert "slower" in shown


def test_an_unknown_commit_is_refused_at_once(repository: Path, run_here: Command) -> None:
    for arguments, sentence in (
        (["base=nothing"], "base=nothing: git cannot read it ("),
        (["algo=ppo"], "algo=ppo: has no replay"),
    ):
        code, shown, errors = run_here(compare_commits, *arguments)
        assert (code, shown, errors.count("\n")) == (2, "", 1)
        assert errors.startswith(f"dqnspeed: {sentence}")
