from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from conftest import make_toy
from PIL import Image

from dqnspeed import envs
from dqnspeed.report import command as report
from dqnspeed.report.command import curves, load, runs_below, table
from dqnspeed.tracking.run_folder import read_metrics
from dqnspeed.trainer import train


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that needs about a second."""
    folder = tmp_path_factory.mktemp("trained")
    run = make_toy("stop.max_steps=1500")
    train(run, envs.describe(run), folder, {}, label="baseline model=mlp")
    return folder


@pytest.fixture
def runs(trained: Path, tmp_path: Path) -> Path:
    for name in "ab":
        shutil.copytree(trained, tmp_path / name)
    return tmp_path


def change(folder: Path, **values: object) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, **values}))


def run_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, str, str]:
    """Exit code, table and complaints of the command."""
    monkeypatch.setattr(sys, "argv", ["dqnspeed-report", *map(str, arguments)])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # which main() sets for this whole process
    monkeypatch.setattr(sys, "path", [*sys.path])
    code = 0
    try:
        report.main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    out, errors = capsys.readouterr()
    return code, out, errors


def test_a_report_has_a_row_and_a_curve_for_each_run(runs: Path) -> None:
    change(runs / "b", label="baseline num_envs=2", time_to_solve_avg_s=12.4)
    assert runs_below([runs]) == [runs / "a", runs / "b"]
    a, b = load(runs / "a"), load(runs / "b")
    shown = table([a, b])
    assert len(shown.splitlines()) == 4
    assert f"| `baseline model=mlp` | exact | 0 | {a['steps_per_second']:.0f} |" in shown
    assert f"| `baseline num_envs=2` | exact | 0 | {b['steps_per_second']:.0f} |" in shown
    assert " | no | 12 s |" in shown and " | no | - |" in shown
    bound = table([{**a, "solved": True, "time_to_solve_s": 300.0, "time_is_lower_bound": True}])
    assert " | ≥ 300 s | " in bound
    assert curves([(runs / "a", a), (runs / "b", b)], runs / "curves.png") == []
    with Image.open(runs / "curves.png") as picture:
        assert picture.size == (960, 540)


def test_a_summary_without_a_name_gets_it_from_the_command_line(runs: Path) -> None:
    hydra = runs / "b" / ".hydra"
    hydra.mkdir()
    (hydra / "overrides.yaml").write_text(
        "- num_envs=2\n- env.id=toy_envs\\:Counter-v0\n- seed=3\n- stop.max_steps=9\n"
    )
    (hydra / "config.yaml").write_text("num_envs: 2\nenv:\n  id: toy_envs:Counter-v0\ndevice: auto\n")
    change(runs / "b", label=None)
    b = load(runs / "b")
    assert b["label"] == "baseline num_envs=2 env.id=toy_envs:Counter-v0"
    assert b["kind"] == ["changes the task", "changes the algorithm"]


@pytest.mark.parametrize("reason", ["error", "SIGINT", "SIGTERM", "running"])
def test_a_run_that_was_not_finished_is_marked_and_no_measure_for_the_others(reason: str, runs: Path) -> None:
    change(runs / "a", label="baseline", stopped_by=reason)
    shown = table([load(runs / "a"), load(runs / "b")])
    assert f" | **not finished: {reason}** | - |" in shown and shown.count("not finished") == 1
    assert "×" not in shown


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"\xff\xfe{", b'{"experiment": "base', b'{"experiment": 3}', None]
)
def test_a_damaged_run_is_named_and_the_others_are_shown(
    content: bytes | None, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = (runs / "a" / "summary.json").read_bytes()
    (runs / "a" / "summary.json").write_bytes(whole[: len(whole) // 2] if content is None else content)
    code, shown, errors = run_report(monkeypatch, capsys, runs)
    assert code == 1 and len(shown.splitlines()) == 3
    assert errors.startswith(f"dqnspeed: {runs / 'a' / 'summary.json'}: is damaged (") and len(errors.splitlines()) == 1


def test_a_folder_without_runs_is_named_beside_a_good_one(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (runs / "empty").mkdir()
    code, shown, errors = run_report(monkeypatch, capsys, runs / "a", runs / "gone", runs / "empty")
    assert code == 1 and len(shown.splitlines()) == 3
    assert errors.splitlines() == [
        f"dqnspeed: {runs / 'gone'}: there is no such folder.",
        f"dqnspeed: {runs / 'empty'}: holds no run (no metrics.jsonl).",
    ]


def begin(folder: Path, *overrides: str) -> None:
    """Make a run in ``folder`` one that is training still, and whose configuration is known."""
    (folder / "summary.json").unlink()
    (folder / ".hydra").mkdir()
    (folder / ".hydra" / "overrides.yaml").write_text("".join(f"- {override}\n" for override in overrides))
    (folder / ".hydra" / "config.yaml").write_text("num_envs: 2\nseed: 5\ndevice: auto\n")


def test_a_run_without_a_summary_is_shown_as_far_as_it_came(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(runs / "b", "num_envs=2", "seed=5")
    code, shown, errors = run_report(monkeypatch, capsys, runs, f"curves={runs / 'curves.png'}")
    assert code == 0 and errors == "" and (runs / "curves.png").exists()
    (row,) = (line for line in shown.splitlines() if "num_envs=2" in line)
    assert row.startswith("| `baseline num_envs=2` | changes the algorithm | 5 | ")
    assert "**not finished: running still, or killed**" in row
    assert f" | {read_metrics(runs / 'b')[0][-1]['episode/return_mean_100']:.1f} | " in row
    (runs / "a" / "summary.json").unlink()
    code, shown, errors = run_report(monkeypatch, capsys, runs)
    assert code == 1 and len(shown.splitlines()) == 3  # nobody knows what a is
    assert errors.startswith(f"dqnspeed: {runs / 'a' / '.hydra'}: is damaged (")


def test_without_a_folder_the_newest_run_or_sweep_is_reported(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(runs)
    code, shown, errors = run_report(monkeypatch, capsys)
    assert (code, shown) == (2, "") and errors.startswith("dqnspeed: outputs/ and multirun/: hold no run; ")
    shutil.copytree("a", "multirun/day/time/0")
    shutil.copytree("a", "multirun/day/time/1")
    Path("multirun/day/time/multirun.yaml").touch()
    shutil.copytree("b", "outputs/day/time")
    os.utime("outputs/day/time/metrics.jsonl", (1e9, 1e9))
    code, shown, errors = run_report(monkeypatch, capsys)
    assert code == 0 and len(shown.splitlines()) == 4
    assert errors == "dqnspeed: reports the newest, multirun/day/time\n"
    begin(Path("outputs/day/time"))
    os.utime("outputs/day/time/metrics.jsonl")
    code, shown, errors = run_report(monkeypatch, capsys)
    assert code == 0 and len(shown.splitlines()) == 3 and "not finished" in shown
    assert errors == "dqnspeed: reports the newest, outputs/day/time\n"


def test_curves_of_cut_files_are_drawn_as_far_as_they_go(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("metrics.jsonl", "episodes.csv"):
        data = (runs / "a" / name).read_bytes()
        (runs / "a" / name).write_bytes(data[: data.rindex(b"0.") - 3])
    (runs / "b" / "episodes.csv").unlink()
    code, shown, errors = run_report(monkeypatch, capsys, runs, f"curves={runs / 'curves.png'}")
    assert code == 1 and len(shown.splitlines()) == 4 and (runs / "curves.png").exists()
    for name in ("metrics.jsonl", "episodes.csv"):
        assert f"dqnspeed: {runs / 'a' / name}: is damaged; 1 of its " in errors
    assert f"dqnspeed: {runs / 'b' / 'episodes.csv'}: cannot be read (No such file or directory)." in errors
    code, shown, errors = run_report(monkeypatch, capsys, runs / "b", f"curves={runs / 'gone' / 'curves.png'}")
    assert code == 1 and shown and f"curves={runs / 'gone' / 'curves.png'}: cannot be written" in errors


def test_without_matplotlib_the_table_is_shown_all_the_same(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, shown, errors = run_report(monkeypatch, capsys, runs, "curves=curves.png")
    assert code == 1 and len(shown.splitlines()) == 4
    assert errors == "dqnspeed: curves=curves.png: needs matplotlib; pip install 'dqnspeed[report]' brings it.\n"


def test_folders_and_options_are_distinguished(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(runs)
    (runs / "a").rename("num_envs=2")
    code, shown, errors = run_report(monkeypatch, capsys, "num_envs=2", "./b")
    assert code == 0 and len(shown.splitlines()) == 4 and errors == ""
    for arguments, sentence in {
        ("b", "--curves", "c.png"): "--curves: is no option; give curves=VALUE.",
        (
            "b",
            "curve=c.png",
        ): "curve=c.png: is no option (nearest: curves); give KEY=VALUE, where KEY is one of curves; "
        "or folders of runs and sweeps.",
    }.items():
        assert run_report(monkeypatch, capsys, *arguments) == (2, "", f"dqnspeed: {sentence}\n")
