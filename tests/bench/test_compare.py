"""The comparison of two results."""

from __future__ import annotations

import dataclasses
import io
import sys
from pathlib import Path

import pytest
from made import make_result
from rich.console import Console

from dqnspeed import bench
from dqnspeed.bench import compare
from dqnspeed.bench import result as results
from dqnspeed.bench.result import Result
from dqnspeed.cli.errors import RunError
from dqnspeed.config.options import ConfigError


def told(old: Result, new: Result, folder: Path, fail_below: float | None = None) -> str:
    """What is printed of two results."""
    for name, one in (("old.json", old), ("new.json", new)):
        results.write(one, folder / name)
    out = io.StringIO()
    compare.command(folder / "old.json", folder / "new.json", fail_below, Console(file=out, width=200))
    return out.getvalue()


def test_a_result_is_within_noise_of_itself(tmp_path: Path) -> None:
    shown = told(make_result(), make_result(), tmp_path, fail_below=0.99)
    assert "faster" not in shown and "slower" not in shown and "0 of 24 moved" in shown
    assert "not the same" not in shown and "alone has" not in shown


def test_what_moved_is_marked_and_what_fell_is_an_error(tmp_path: Path) -> None:
    old, new = make_result(), make_result(0.85, seed=1)
    assert told(old, new, tmp_path).count("slower") == 24
    assert told(new, old, tmp_path, fail_below=0.9).count("faster") == 24
    with pytest.raises(RunError, match=r"^fail_below=0.9: 21 of 22 fell below: rungs: baseline; ") as fell:
        told(old, new, tmp_path, fail_below=0.9)
    assert "Stable-Baselines3" not in str(fell.value) and "matrix" not in str(fell.value)  # no change of ours
    told(old, new, tmp_path, fail_below=0.5)


def test_an_interval_that_reaches_over_the_bound_is_no_failure(tmp_path: Path) -> None:
    [change] = [one for one in compare.compare(make_result(), make_result(0.9, seed=1)) if one.new.name == "32"]
    assert change.ratio is not None and change.ratio.low < 0.9 < change.ratio.high
    assert not change.fell_below(0.9) and change.fell_below(0.95)


def test_what_can_no_longer_be_measured_fell(tmp_path: Path) -> None:
    old = make_result()
    rows = [
        dataclasses.replace(row, error="exited with 1.", value=None, ratio=None) if row.name == "write" else row
        for row in old.measurements
    ]
    new = dataclasses.replace(old, measurements=rows)
    with pytest.raises(RunError, match=r"1 of 22 fell below: replay: write\.$"):
        told(old, new, tmp_path, fail_below=0.1)
    assert "replay: write: exited with 1." in told(new, old, tmp_path, fail_below=0.1)


def test_what_makes_two_results_unlike_is_named(tmp_path: Path) -> None:
    old = make_result()
    new = make_result(
        env="BreakoutNoFrameskip-v4", suite="micro", complete=False, measurements=old.measurements[1:],
        machine={**old.machine, "cpu": "Another Processor"}, versions={**old.versions, "torch": "2.14.0"},
    )  # fmt: skip
    shown = told(old, new, tmp_path)
    for sentence in (
        "The newer result is partial.",
        "env is not the same: PongNoFrameskip-v4 before, BreakoutNoFrameskip-v4 now.",
        "suite is not the same: quick before, micro now.",
        "cpu is not the same: Imagined Processor before, Another Processor now.",
        "torch is not the same: 2.13.0 before, 2.14.0 now.",
        "The older result alone has rungs: baseline.",
    ):
        assert sentence in shown.splitlines()


def test_too_few_repeats_have_no_verdict(tmp_path: Path) -> None:
    old = make_result()
    rows = [dataclasses.replace(row, pairs=row.pairs[:2]) for row in old.measurements]
    shown = told(old, dataclasses.replace(old, measurements=rows), tmp_path, fail_below=0.9)
    assert shown.count("too few repeats") == 24 and "0 of 0 moved" in shown


def test_results_without_a_piece_in_common_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"old\.json: has no piece in common with .*new\.json\.$"):
        told(make_result(), make_result(measurements=[]), tmp_path)


def test_the_command_line_says_what_is_wrong_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, cut = (tmp_path / f"{name}.json" for name in ("old", "new", "cut"))
    results.write(make_result(), old)
    results.write(make_result(0.85, seed=1), new)
    cut.write_text(old.read_text()[:900])
    line = old.read_text()[:900].count("\n") + 1
    for arguments, code, sentence in (
        ([f"compare={old}", str(new)], 0, ""),
        ([f"compare={old}", str(new), "fail_below=0.9"], 1, "dqnspeed: fail_below=0.9: 21 of 22 fell below: "),
        ([f"compare={cut}", str(new)], 2, f"dqnspeed: {cut}: is damaged (line {line}: "),
        ([f"compare={old}", str(cut)], 2, f"dqnspeed: {cut}: is damaged (line {line}: "),
        ([f"compare={old}", str(tmp_path / "none")], 2, f"dqnspeed: {tmp_path / 'none'}: cannot be read ("),
        ([f"compare={old}"], 2, f"dqnspeed: compare={old}: takes two files"),
    ):
        monkeypatch.setattr(sys, "argv", ["dqnspeed-bench", *arguments])
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # which main() sets for this whole process
        monkeypatch.setattr(sys, "path", [*sys.path])
        found = 0
        try:
            bench.main()
        except SystemExit as ended:
            found = int(ended.code or 0)
        _, errors = capsys.readouterr()
        assert (found, errors.startswith(sentence), errors.count("\n")) == (code, True, bool(code)), errors
