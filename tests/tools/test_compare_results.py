"""The comparison of two results."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import compare_results
import pytest
from conftest import Command

from dqnspeed.bench.result import Measurement, Result


@pytest.fixture
def compared(tmp_path: Path, run_here: Command) -> Command:
    """Compares two results; returns the exit code and what is printed."""

    def run(old: Result, new: Result, *arguments: str) -> tuple[int, str, str]:
        for name, one in (("old", old), ("new", new)):
            (tmp_path / name).write_text(json.dumps(dataclasses.asdict(one)))
        return run_here(compare_results, tmp_path / "old", tmp_path / "new", *arguments)

    return run


def row(speeds: Sequence[float], group: str = "replay", name: str = "write", **changes: Any) -> Measurement:
    pairs: Any = [[None, speed] for speed in speeds]
    return Measurement(group, name, "transitions/s", pairs=pairs, value=speeds[0] if speeds else None, **changes)


def result(*rows: Measurement, **changes: Any) -> Result:
    made = Result(
        command="", started="", suite="micro", env="Pong", overrides=[], machine={}, versions={}, commit=None,
        measurements=[*rows],
    )  # fmt: skip
    return dataclasses.replace(made, **changes)


OLD = [100.0, 101.0, 99.0, 100.5, 99.5]


def test_a_result_is_within_noise_of_itself(compared: Command) -> None:
    code, shown, _ = compared(result(row(OLD)), result(row(OLD)), "fail_below=0.99")
    assert code == 0 and "within noise" in shown and "differs" not in shown and "only in" not in shown


def test_a_change_is_marked_and_a_fall_is_an_error(compared: Command) -> None:
    slow = [0.85 * speed for speed in OLD]
    old, new = (result(row(speeds), row(speeds, "limits", "memory copy")) for speeds in (OLD, slow))
    assert compared(old, new)[0] == 0 and compared(old, new, "fail_below=0.5")[0] == 0
    assert compared(new, old, "fail_below=0.9")[1].count("faster") == 2
    code, shown, errors = compared(old, new, "fail_below=0.9")
    assert code == 1 and shown.count("slower") == 2
    assert errors == "dqnspeed: fail_below=0.9: 1 of 2 fell below: replay: write.\n"  # limits do not count


def test_a_piece_that_can_no_longer_be_measured_fell(compared: Command) -> None:
    broken = result(row([], error="exited with 1."))
    code, shown, _ = compared(result(row(OLD)), broken, "fail_below=0.1")
    assert code == 1 and "replay: write: exited with 1." in shown
    assert compared(broken, result(row(OLD)), "fail_below=0.1")[0] == 0


def test_differences_between_two_results_are_named(compared: Command) -> None:
    _, shown, _ = compared(result(row(OLD[:4]), row(OLD, name="gone")), result(row(OLD), env="Breakout"))
    assert shown.splitlines() == [
        "env differs: Pong before, Breakout now.",
        "replay: gone: only in one result.",
        "replay: write: fewer than five repeats, so no interval.",
    ]


def test_files_that_cannot_be_compared_are_refused(tmp_path: Path, run_here: Command) -> None:
    (tmp_path / "cut").write_text('{"suite":')
    for arguments, sentence in (
        (["one"], "one: takes two files bench.json."),
        ([tmp_path / "cut"] * 2, f"{tmp_path / 'cut'}: cannot be read ("),
    ):
        code, shown, errors = run_here(compare_results, *arguments)
        assert (code, shown, errors.count("\n")) == (2, "", 1) and errors.startswith(f"dqnspeed: {sentence}")
