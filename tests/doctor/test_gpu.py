"""The command that tries a GPU: what it tells, and that it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from conftest import environment, make_run

from dqnspeed.cli.resume import CHANGEABLE
from dqnspeed.config.options import ConfigError
from dqnspeed.doctor import gpu as gpu_check
from dqnspeed.doctor.gpu import FAILED, PASSED, SKIPPED, CheckConfig, Part, Result
from dqnspeed.execution.precision import check_learner


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_one_sentence_is_said_and_nothing_made(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dqnspeed.doctor.gpu", f"out={tmp_path / 'gpu.md'}", f"folder={tmp_path}"]
    result = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert result.stderr.startswith("dqnspeed: gpu_check: torch ") and "finds no CUDA device here" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("part=all_of_it", "part=all_of_it: choose one of all, tests, train, resume, timings, bench."),
        ("seconds=0", "seconds=0.0: must be more than 0."),
        ("device=cpu", "device=cpu: give out=FILE and folder=FOLDER too, so that no GPU's results are overwritten."),
        (
            "parts=tests",
            "parts=tests: is no option (nearest: part); give KEY=VALUE, where KEY is one of part, seconds",
        ),
    ],
)
def test_options_are_checked(argument: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        gpu_check.parse([argument])
    assert sentence in str(raised.value)


def test_parts_share_one_report_and_any_failure_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    figures = {"steps_per_second": 1234.5, "updates_per_second": 77.0, "startup_s": 3.0, "peak_gpu_mib": 99.0,
               "peak_rss_mib": None, "reported": {"time/acting": 1.5, "perf/gpu_busy": 0.914}}  # fmt: skip

    def tests(part: Part) -> Iterator[Result]:
        yield Result("a test", PASSED)
        yield Result("another", SKIPPED, "needs two devices")

    def train(part: Part) -> Iterator[Result]:
        yield Result("speedrun", PASSED, figures=figures)
        yield Result("pqn", FAILED, "exit code 1: it broke")

    monkeypatch.setitem(gpu_check.PARTS, "tests", tests)
    monkeypatch.setitem(gpu_check.PARTS, "train", train)
    for part in ("train", "tests"):
        options = CheckConfig(part=part, out=str(tmp_path / "docs" / "gpu.md"), folder=str(tmp_path), device="cpu")
        gpu_check.check(options)
    report = (tmp_path / "docs" / "gpu.md").read_text()
    assert report.index("## Tests: 1 passed, 0 failed, 1 skipped") < report.index("## Train: 1 passed, 1 failed, 0")
    assert "- skipped: another: needs two devices" in report and "- failed: pqn: exit code 1: it broke" in report
    assert "| speedrun | 1,234.5 | 77.0 | 3.0 | 99.0 | – | 91% | acting 1.5 |" in report
    assert f"torch {torch.__version__.split('+')[0]}" in report
    assert set(json.loads((tmp_path / "results.json").read_text())) == {"tests", "train"}


def test_what_hangs_is_ended_with_its_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(gpu_check.LIMITS, "train", 3)
    part = Part("train", CheckConfig(folder=str(tmp_path), device="cpu"), "now")
    assert part.call("hangs", "http.server", "--bind", "127.0.0.1", "0")[0] is None
    assert part.train("later") == Result("later", SKIPPED, "not run: no time was left for it")


def test_tests_that_ended_before_one_that_took_all_with_it_are_told(tmp_path: Path) -> None:
    slow = tmp_path / "test_slow.py"
    slow.write_text(
        "import os\nimport pytest\npytestmark = getattr(pytest.mark, 'cuda')\ndef test_a(): pass\n"
        "@pytest.mark.parametrize('n', ['x, y'])\ndef test_b(n): assert 0\ndef test_c(): os.kill(os.getpid(), 9)\n"
    )
    part = Part("tests", CheckConfig(folder=str(tmp_path), device="cpu"), "now")
    found = list(gpu_check._try_file(part, slow, seconds=100))
    assert [result.verdict for result in found] == [PASSED, FAILED, FAILED]
    assert found[1].name.endswith("test_slow.py::test_b[x, y]") and found[2].reason.startswith("exit code -9: ")


def test_all_parts_together_end_within_the_minutes_that_are_told_and_each_within_nine() -> None:
    assert sum(gpu_check.LIMITS.values()) <= 24 * 60 and max(gpu_check.LIMITS.values()) <= 9 * 60
    assert set(gpu_check.PARTS) == set(gpu_check.LIMITS)


@pytest.mark.parametrize("name", [name for name in gpu_check.EXECUTIONS if name != "compiled"])
def test_every_way_to_execute_composes(name: str) -> None:
    make_run("algo.learning_starts=600", "algo.batch_size=256", "device=cuda", *gpu_check.EXECUTIONS[name])


@pytest.mark.parametrize("name", gpu_check.RESUMED)
def test_every_run_that_is_resumed_composes_on_a_gpu_and_on_a_cpu(name: str) -> None:
    overrides = gpu_check.RESUMED[name]
    run = make_run(*overrides, "device=cuda", *gpu_check._resumed_with(overrides, "cuda"))
    assert run.execution.graph == ("graph" in name)
    given = gpu_check._resumed_with(overrides, "cpu")
    assert all(override.startswith(CHANGEABLE) for override in given)
    check_learner(make_run(*overrides, *given, "device=cpu"))
