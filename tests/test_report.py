from __future__ import annotations

from pathlib import Path

from conftest import make_toy
from PIL import Image

from dqnspeed import envs
from dqnspeed.report import curves, runs_below, table
from dqnspeed.trainer import train


def test_a_report_has_a_row_and_a_curve_for_each_run(tmp_path: Path) -> None:
    summaries = []
    for name in "ab":
        (tmp_path / name).mkdir()
        run = make_toy("stop.max_steps=1500", f"experiment.name={name}")
        summaries.append(train(run, envs.describe(run), tmp_path / name, {}))
    assert runs_below([tmp_path]) == [tmp_path / "a", tmp_path / "b"]
    shown = table(summaries)
    assert len(shown.splitlines()) == 4
    for summary in summaries:
        assert f"| `{summary['experiment']}` | exact | 0 | {summary['steps_per_second']:.0f} |" in shown
    curves(runs_below([tmp_path]), tmp_path / "curves.png")
    with Image.open(tmp_path / "curves.png") as picture:
        assert picture.size == (960, 540)
