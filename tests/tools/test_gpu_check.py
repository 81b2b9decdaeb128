"""The check of a GPU: its time limits, and its results for commands that fail or hang."""

from __future__ import annotations

import sys
from pathlib import Path

import gpu_check
import pytest
import torch
from gpu_check import FAILED, PASSED, Part, Result


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--out", str(tmp_path / "gpu.md")])
    assert gpu_check.main() == 2
    errors = capsys.readouterr().err
    assert "finds no CUDA device" in errors and errors.count("\n") == 1 and list(tmp_path.iterdir()) == []


def test_a_command_that_hangs_ends_with_its_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(gpu_check.LIMITS, "train", 1)
    part = Part("train", "cpu", tmp_path)
    assert part.call("hangs", "http.server", "--bind", "127.0.0.1", "0")[0] is None
    assert part.train("later", 5) == Result("later", gpu_check.SKIPPED, "no time left")


def test_a_failed_training_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    result = Part("train", "cpu", tmp_path).train("broken", 5, "num_envs=-1")
    assert result.verdict == FAILED and result.detail.startswith("exit code ") and "num_envs=-1" in result.detail


@pytest.mark.parametrize(
    ("code", "log", "verdict", "counts"),
    [
        (0, "tests/a.py::test_a[x y] PASSED [ 50%]\ntests/a.py::test_b SKIPPED (why) [100%]", PASSED, "1 passed, "),
        (0, "[gw1] [ 50%] PASSED tests/a.py::test_a\n[gw0] [100%] PASSED tests/a.py::test_b", PASSED, "2 passed"),
        (None, "tests/a.py::test_a PASSED [ 50%]", PASSED, "1 passed, 0 failed, 0 skipped; the others did not end in"),
        (0, "tests/a.py::test_a SKIPPED (needs a CUDA device) [100%]", FAILED, "0 passed, 0 failed, 1 skipped"),
        (-9, "tests/a.py::test_a PASSED [ 50%]", FAILED, "1 passed"),
    ],
)
def test_a_part_passes_if_some_tests_passed_and_none_failed(
    code: int | None, log: str, verdict: str, counts: str
) -> None:
    first, *_ = gpu_check.read_tests("tests", code, log)
    assert first.verdict == verdict and first.detail.startswith(counts)
