from __future__ import annotations

from pathlib import Path

from conftest import make_toy
from PIL import Image

from dqnspeed import envs
from dqnspeed.report import curves, load, runs_below, table
from dqnspeed.trainer import train


def test_a_report_has_a_row_and_a_curve_for_each_run(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        run = make_toy("stop.max_steps=1500", f"experiment.name={name}")
        train(run, envs.describe(run), tmp_path / name, {})
    (tmp_path / "b" / ".hydra").mkdir()
    (tmp_path / "b" / ".hydra" / "overrides.yaml").write_text("- wrappers=tweaked\n- seed=3\n- stop.max_steps=9\n")
    assert runs_below([tmp_path]) == [tmp_path / "a", tmp_path / "b"]
    a, b = load(tmp_path / "a"), load(tmp_path / "b")
    shown = table([a, b])
    assert len(shown.splitlines()) == 4
    assert f"| `a` | exact | 0 | {a['steps_per_second']:.0f} |" in shown
    assert f"| `b wrappers=tweaked` | exact (of the rung) | 0 | {b['steps_per_second']:.0f} |" in shown
    curves(runs_below([tmp_path]), tmp_path / "curves.png")
    with Image.open(tmp_path / "curves.png") as picture:
        assert picture.size == (960, 540)
