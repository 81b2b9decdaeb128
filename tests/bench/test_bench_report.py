"""Tables and page of a result."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from example_result import BEST, make_result
from rich.console import Console

from dqnspeed.bench import command
from dqnspeed.bench.report import number, page, print_result
from dqnspeed.bench.result import Interval, Measurement, Recommendation, Result

LINE = f"python -m dqnspeed.train {' '.join(BEST)}"


def printed(result: Result, width: int | None = None) -> str:
    """The output on a terminal of this width, or in a file."""
    out = io.StringIO()
    print_result(result, Console(file=out, force_terminal=width is not None, width=width, color_system=None))
    return out.getvalue()


def test_a_file_gets_every_row_and_column_on_one_line() -> None:
    result = make_result()
    lines = printed(result).splitlines()
    for row in result.measurements:
        [line] = [one for one in lines if one.startswith(row.name) and (row.error or number(row.value) in one)]
        assert row.error is None or row.error in line
    [best] = [line for line in lines if line.startswith(" ".join(BEST))]
    assert "recommended" in best and "equivalent" in best
    [channels] = [line for line in lines if line.startswith("execution.channels_last")]
    assert "within noise" in channels
    assert LINE in lines and "another process (make)" in "".join(lines)


@pytest.mark.parametrize("width", [40, 80])
def test_a_narrow_terminal_keeps_the_speeds_and_a_command_that_can_be_pasted(width: int) -> None:
    shown = printed(make_result(), width)
    tables, _, end = shown.partition("another process")
    assert max(map(len, tables.splitlines())) <= width
    assert ("1.70×" in tables and "within noise" in tables) or width < 80
    assert LINE in end.splitlines()


@pytest.mark.parametrize("count", [0, 9])
def test_a_partial_result_is_shown(count: int) -> None:
    whole = make_result(recommendation=None, bottlenecks=[], ended=None)
    partial = dataclasses.replace(whole, measurements=whole.measurements[:count])
    assert "This result is partial." in printed(partial)
    assert "**This result is partial.**" in page(partial)


def test_a_result_of_failures_and_of_zeros_is_shown() -> None:
    failed = Measurement("envs", "a", "frames/s", error="exited with 3.")
    zero = Measurement("envs", "b", "frames/s", pairs=[[0.0, 0.0]], value=0.0, reference=0.0)
    large = Measurement("replay", "c", "$/s", value=3e13, ratio=Interval(2, 1, 3), reference=1e13)
    result = make_result(measurements=[failed, zero, large])
    assert "a: not measured: exited with 3." in printed(result) and "30.0 T" in printed(result)
    assert "not measured" in page(make_result(measurements=[failed]))
    assert "30.0 T" in page(result)


def test_without_a_faster_command_the_baseline_is_recommended() -> None:
    nothing = Recommendation([], "python -m dqnspeed.train", {}, Interval(1, 1, 1), sentence="Nothing is faster.")
    lines = printed(make_result(recommendation=nothing)).splitlines()
    assert lines[lines.index("Nothing is faster.") + 1] == "python -m dqnspeed.train"
    assert any(line.startswith("baseline") and "recommended" in line for line in lines)


def test_the_page_has_the_command_and_the_tables_of_the_terminal() -> None:
    result = make_result()
    text = page(result)
    assert f"```bash\n{LINE}\n```" in text
    assert "Exact: parallelism=overlap; equivalent: backend=ale execution=lean." in text
    tables = printed(result).partition("another process")[0].strip()
    assert f"```text\n{tables}\n```" in text


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command.write_page(make_result(), tmp_path / "gone")
    assert capsys.readouterr().err.startswith(f"dqnspeed: {tmp_path / 'gone'}: ")
    command.write_page(make_result(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["bench.md"]
