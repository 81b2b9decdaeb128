"""Tables, page and picture of a result."""

from __future__ import annotations

import dataclasses
import io
import sys
from pathlib import Path

import pytest
from example_result import BEST, make_result
from PIL import Image
from rich.console import Console

from dqnspeed.bench import command, picture
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
    assert "recommended" in best and "68%" in best and "equivalent" in best
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


def write_page(result: Result, folder: Path) -> str:
    """Draw the picture and return the page."""
    picture.draw(result, folder / "bench.png")
    assert (folder / "bench.png").stat().st_size
    return page(result)


@pytest.mark.parametrize("count", [0, 9])
def test_a_partial_result_is_shown(count: int, tmp_path: Path) -> None:
    whole = make_result(recommendation=None, bottlenecks=[], ended=None)
    partial = dataclasses.replace(whole, measurements=whole.measurements[:count])
    assert "This result is partial." in printed(partial)
    assert "**This result is partial.**" in write_page(partial, tmp_path)


def test_a_result_of_failures_and_of_zeros_is_shown(tmp_path: Path) -> None:
    failed = Measurement("envs", "a", "frames/s", error="exited with 3.")
    zero = Measurement("envs", "b", "frames/s", pairs=[[0.0, 0.0]], value=0.0, reference=0.0)
    large = Measurement("replay", "c", "$/s", value=3e13, ratio=Interval(2, 1, 3), reference=1e13)
    result = make_result(measurements=[failed, zero, large])
    assert "a: not measured: exited with 3." in printed(result) and "30.0 T" in printed(result)
    assert "not measured" in write_page(make_result(measurements=[failed]), tmp_path)
    assert "30.0 T" in write_page(result, tmp_path)


def test_without_a_faster_command_the_baseline_is_recommended() -> None:
    nothing = Recommendation([], "python -m dqnspeed.train", {}, Interval(1, 1, 1), sentence="Nothing is faster.")
    lines = printed(make_result(recommendation=nothing)).splitlines()
    assert lines[lines.index("Nothing is faster.") + 1] == "python -m dqnspeed.train"
    assert any(line.startswith("baseline") and "recommended" in line for line in lines)


def test_the_picture_has_a_bar_for_all_rows_but_limits(tmp_path: Path) -> None:
    long = "execution=graph execution.precision=bf16 execution.channels_last=true parallelism=process num_envs=4"
    noise = Measurement("trainings", long, "agent steps/s", value=1e5, ratio=Interval(1.01, 0.5, 1.6))
    write_page(make_result(measurements=[*make_result().measurements, noise]), tmp_path)
    with Image.open(tmp_path / "bench.png") as shown:
        pixels = shown.convert("RGB")
        assert shown.width == 1000
        edges = [pixels.getpixel((x, y)) for y in range(shown.height) for x in (0, shown.width - 1)]
        assert set(edges) == {(255, 255, 255)}  # nothing runs over the edge
        assert {(0, 121, 107), (219, 227, 234)} <= {color for _, color in pixels.getcolors(1 << 20)}


def test_an_unwritable_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command.write_page(make_result(), tmp_path / "gone")
    assert capsys.readouterr().err.startswith(f"dqnspeed: {tmp_path / 'gone'}: ")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    command.write_page(make_result(), tmp_path)
    assert "matplotlib" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["bench.md"]
