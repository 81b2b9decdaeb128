from __future__ import annotations

import functools
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from conftest import Command, make_toy, train_in
from full_disk import file_size_limit
from PIL import Image

from dqnspeed.report import command as report
from dqnspeed.report.figures import figures_of
from dqnspeed.report.rungs import Rung, baseline_of, rungs_of, shared_overrides, short_names
from dqnspeed.report.runs import read_run, runs_below
from dqnspeed.report.tables import headlines, run_table, rung_table
from dqnspeed.tracking.run_folder import read_metrics


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run."""
    folder = tmp_path_factory.mktemp("trained")
    run = make_toy("stop.max_steps=300")
    train_in(folder, run, label="baseline model=mlp")
    change(folder, busy=None, benchmark=True)
    return folder


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide matplotlib, because drawing takes seconds."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)


@pytest.fixture
def runs(trained: Path, tmp_path: Path) -> Path:
    for name in "ab":
        shutil.copytree(trained, tmp_path / name)
    return tmp_path


def change(folder: Path, **values: object) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, **values}))


@pytest.fixture
def run_report(run_here: Command) -> Command:
    """Runs the command with these arguments; returns its exit code, table and complaints."""
    return functools.partial(run_here, report)


def write_metrics(folder: Path, *lines: dict[str, object]) -> None:
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def rungs_below(folder: Path) -> list[Rung]:
    return rungs_of([read_run(run) for run in runs_below([folder])])


def rows_of(shown: str) -> tuple[list[dict[str, str]], ...]:
    """The rows of each Markdown table, by the names of their columns."""
    tables = list[list[dict[str, str]]]()
    for block in re.split(r"\n(?!\|)", shown):
        lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in block.strip().splitlines()]
        if block.strip().startswith("|"):
            tables.append([dict(zip(lines[0], line, strict=True)) for line in lines[2:]])
    return tuple(tables)


def test_a_report_has_a_row_for_each_rung_and_each_run(runs: Path, run_report: Command) -> None:
    for name in "cdef":
        shutil.copytree(runs / "b", runs / name)
    for seed, name in enumerate("bcdef"):
        change(runs / name, label="baseline num_envs=2", time_to_solve_avg_s=12.4, seed=seed)
    assert runs_below([runs]) == [runs / name for name in "abcdef"]
    code, shown, errors = run_report(runs)
    assert (code, errors) == (0, "")
    rungs, each = rows_of(shown)
    assert [row["rung"] for row in rungs] == ["`baseline model=mlp`", "`baseline num_envs=2`"]
    assert [row["seeds"] for row in rungs] == ["0", "0, 1, 2, 3, 4"]
    assert sorted(row["run"] for row in each) == ["`baseline model=mlp`", *["`baseline num_envs=2`"] * 5]
    speed = read_run(runs / "a").summary["steps_per_second"]
    assert rungs[0]["steps/s"] == f"{speed:.0f}" and rungs[1]["steps/s"] == f"{speed:.0f} [{speed:.0f}, {speed:.0f}]"
    assert {row["solved by exponential mean"] for row in each} == {"-", "12 s"}


def test_a_report_is_a_page_a_text_and_pictures(
    runs: Path, run_report: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # brings matplotlib back
    out = runs / "out" / "here"
    code, shown, errors = run_report(runs / "a", f"out={out}", "title=One & <only>")
    assert (code, errors) == (0, "") and str(out / "report.html") in shown
    assert not (runs / "a" / "report.html").exists()
    page, text = (out / "report.html").read_text(), (out / "report.md").read_text()
    assert "<h1>One &amp; &lt;only&gt;</h1>" in page and text.startswith("# One &amp; &lt;only&gt;\n")
    drawn = sorted(path.name for path in (out / "report").iterdir())
    assert "return_by_time.png" in drawn and all(f"(report/{name})" in text for name in drawn)
    with Image.open(out / "report" / "return_by_time.png") as picture:
        assert picture.size == (960, 540)


def test_names_are_no_html_in_the_text(runs: Path, run_report: Command) -> None:
    label, error = "ours model=<img>", "bad <b>` <i>bold</i>"
    change(runs / "a", label=label, machine={"cpu": "<script>alert(1)</script>", "cores": 2})
    change(runs / "b", label=f"{label}`<u>", stopped_by="error", error=error)
    (runs / "a" / "run.json").write_text('{"overrides": ["+x=<s>"]}')
    _, shown, _ = run_report(runs)
    text = (runs / "report.md").read_text()
    assert f"| `{label}` |" in text and f"| `{label}'<u>` |" in text, "code, in which nothing is HTML"
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert "<" not in outside and "&lt;script>" in text.replace("&gt;", ">") and "&lt;s" in outside
    assert "<script>" not in shown and f"failed: {error}" in shown, "a terminal shows what is there"


def test_times_to_solve_are_medians_in_which_unsolved_runs_count(runs: Path) -> None:
    times = {"a": 300.0, "b": 500.0, "c": None, "d": 320.0, "e": None}
    for name in "cde":
        shutil.copytree(runs / "a", runs / name)
    for seed, (name, seconds) in enumerate(times.items()):
        change(runs / name, seed=seed, solved=seconds is not None, time_to_solve_s=seconds,
               wall_time_s=seconds or 1800.0, reward_bound=17.0, label="speedrun")  # fmt: skip
    (rung,) = rungs_below(runs)
    (row,) = rung_table([rung], None).rows
    assert row[2:4] == ["8.3 min [5.0, > 30.0]", "3 of 5"]
    assert sorted(row[-1] for row in run_table(rung.runs).rows) == ["300 s", "320 s", "500 s", *["> 30.0 min"] * 2]
    change(runs / "a", time_is_lower_bound=True)
    (rung,) = rungs_below(runs)
    assert rung_table([rung], None).rows[0][2].startswith("≥ 8.3 min")
    assert run_table(rung.runs).rows[0][-1] == "≥ 300 s"
    for name in times:
        change(runs / name, solved=False, time_to_solve_s=None, time_is_lower_bound=False)
    (rung,) = rungs_below(runs)
    assert rung_table([rung], None).rows[0][2] == "> 30.0 min"


def test_changes_are_against_the_baseline_and_the_book_s_stand_beside_them(runs: Path, run_report: Command) -> None:
    pong = {"env": "PongNoFrameskip-v4", "reward_bound": 17.0, "solved": True, "stopped_by": "reward_bound"}
    change(runs / "a", **pong, label="baseline", steps_per_second=50.0, time_to_solve_s=2000.0)
    change(runs / "b", **pong, label="process", steps_per_second=100.0, time_to_solve_s=500.0)
    for folder in ("a", "b"):
        (runs / folder / "config.json").unlink(missing_ok=True)
    code, shown, _ = run_report(runs)
    baseline, process = shown.splitlines()[2:4]
    assert baseline.startswith("| `baseline` | 50 | - | 33.3 min | - | 1 of 1 | ")
    assert process.startswith("| `process` | 100 | +100% | 8.3 min | -75% | 1 of 1 | ")
    assert process.endswith(" | 402 | +153% | 59 min | -44% |")  # the book's
    assert "process solves Pong soonest: in 8.3 min (one seed; 75% less than baseline)." in shown
    code, shown, _ = run_report(runs, "baseline=process")
    assert code == 0 and "| `baseline` | 50 | -50% | 33.3 min | +300% |" in shown
    before = sorted(runs.rglob("*"))
    code, shown, errors = run_report(runs, "baseline=proces", f"out={runs / 'new'}")
    assert (code, shown) == (2, "") and sorted(runs.rglob("*")) == before
    assert errors.startswith("dqnspeed: baseline=proces: there is no such rung (nearest: process). Choose one of ")


def test_runs_are_put_together_by_any_option(runs: Path, run_report: Command) -> None:
    for seed, name in enumerate("ab"):
        change(runs / name, label=f"baseline {name}", seed=seed)
        (runs / name / "config.json").write_text(json.dumps({"num_envs": 2, "algo": {"name": "dqn", "gamma": seed}}))
    for key, expected in {"algo": ["`algo=dqn`"], "algo.gamma": ["`algo.gamma=0`", "`algo.gamma=1`"]}.items():
        _, shown, _ = run_report(runs, f"group_by={key}")
        assert [row["rung"] for row in rows_of(shown)[0]] == expected
    for name, layers in {"a": [64, 64], "b": [128, 64]}.items():
        (runs / name / "config.json").write_text(json.dumps({"env": {"id": "a-v0"}, "model": {"hidden": layers}}))
    lists = ["`model.hidden=[64,64]`", "`model.hidden=[128,64]`"]
    for key, expected in {"env": ["`env=a-v0`"], "model.hidden": lists}.items():
        _, shown, _ = run_report(runs, f"group_by={key}")
        assert [row["rung"] for row in rows_of(shown)[0]] == expected
    code, shown, errors = run_report(runs, "group_by=modell")
    assert (code, shown) == (2, "")
    assert errors.startswith("dqnspeed: group_by=modell: no run has this option (nearest: model")


def test_runs_of_a_row_that_differ_are_named(runs: Path, run_report: Command) -> None:
    for seed, (name, games) in enumerate({"a": 22, "b": 100}.items()):
        config = {"stop": {"window": 100, "max_minutes": 10 * seed}, "tracking": {"tensorboard": not seed}}
        (runs / name / "config.json").write_text(json.dumps(config))
        change(runs / name, seed=seed, return_mean_100=7.0, return_mean_games=games)
    _, shown, _ = run_report(runs)
    assert "baseline model=mlp: its runs also differ in stop.max_minutes." in shown
    rungs, each = rows_of(shown)
    assert rungs[0]["mean return"] == "7.0 (over 22 or more games)"
    assert [row["mean return"] for row in each] == ["7.0 (over 22 games)", "7.0"]


def test_games_and_bounds_are_not_put_together(runs: Path) -> None:
    for name, (env, bound) in {"a": ("ALE/Pong-v5", 17.0), "b": ("ALE/Pong-v5", 19.0), "c": ("x:Y-v0", None)}.items():
        if name == "c":
            shutil.copytree(runs / "a", runs / "c")
        change(runs / name, label="ours", env=env, reward_bound=bound)
        (runs / name / "config.json").write_text("{}")
    rungs = rungs_below(runs)
    assert [rung.name for rung in rungs] == [
        "ours, Pong, bound=17.0", "ours, Pong, bound=19.0", "ours, x:Y, bound=None"
    ]  # fmt: skip
    assert rungs[1].change(rungs[0]) == rungs[0].change(rungs[0]) == (None, None)


def test_other_bounds_and_resumptions_are_told(runs: Path, run_report: Command) -> None:
    shutil.copytree(runs / "a", runs / "c")
    for name in "abc":
        known = {"env": "ALE/Pong-v5", "solved": True, "time_to_solve_s": 1.0}
        change(runs / name, **known, label=f"ours model={name}", reward_bound=17.0 if name != "c" else 19.0)
        (runs / name / "config.json").write_text("{}")
    change(runs / "b", resumed_at=[1200])
    code, shown, errors = run_report(runs)
    assert (code, errors) == (0, "")
    assert "solves Pong (a mean of 17) soonest" in shown and "solves Pong (a mean of 19): in" in shown
    assert "resumed: at step 1,200" in shown


def test_one_that_failed_or_was_pruned_solves_the_game_no_sooner_for_it(runs: Path) -> None:
    shutil.copytree(runs / "b", runs / "c")
    for name, values in {
        "a": {"stopped_by": "error", "error": "NaN."}, "b": {"stopped_by": "error", "error": "NaN."},
        "c": {"solved": True, "stopped_by": "reward_bound", "time_to_solve_s": 600.0},
    }.items():  # fmt: skip
        change(runs / name, label="ours", reward_bound=17.0, wall_time_s=60.0, **values)
    (rung,) = rungs_below(runs)
    assert rung.time_to_solve is not None and rung.time_to_solve.value == float("inf")


def test_what_all_rungs_share_is_left_out_of_their_names(runs: Path) -> None:
    change(runs / "a", label="process execution.threads=1")
    change(runs / "b", label="process num_envs=2 execution.threads=1")
    rungs = rungs_below(runs)
    assert [rung.name for rung in rungs] == ["process", "process num_envs=2"]
    assert baseline_of(rungs, "process") is baseline_of(rungs, "process execution.threads=1") is rungs[0]


@pytest.mark.parametrize("reason", ["error", "SIGINT"])
def test_a_run_that_was_not_finished_is_marked_and_no_measure_for_the_others(reason: str, runs: Path) -> None:
    error = "a part broke" if reason == "error" else None
    change(runs / "a", label="baseline", stopped_by=reason, error=error)
    rungs = rungs_below(runs)
    assert rungs[1].change(baseline_of(rungs)) == (None, None)
    shown = rung_table(rungs, baseline_of(rungs)).markdown()
    said = f"failed: {error}" if reason == "error" else f"not finished: {reason}"
    assert shown.count(f" | {said} |") == 1 and "change" not in shown


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe{", b'{"experiment": "base', b'{"experiment": 3}'])
def test_a_damaged_run_is_named_and_the_others_are_shown(content: bytes, runs: Path, run_report: Command) -> None:
    (runs / "a" / "summary.json").write_bytes(content)
    code, shown, errors = run_report(runs)
    assert code == 1 and len(rows_of(shown)[0]) == 1
    assert errors.startswith(f"dqnspeed: {runs / 'a' / 'summary.json'}: is damaged (") and len(errors.splitlines()) == 1


def test_a_folder_without_runs_is_named_beside_a_good_one(runs: Path, run_report: Command) -> None:
    (runs / "empty").mkdir()
    code, shown, errors = run_report(runs / "a", runs / "gone", runs / "empty")
    assert code == 1 and len(rows_of(shown)[0]) == 1
    assert f"dqnspeed: {runs / 'gone'}: there is no such folder.\n" in errors
    assert f"dqnspeed: {runs / 'empty'}: holds no run (no metrics.jsonl).\n" in errors


def begin(folder: Path, **values: object) -> None:
    """Make a run in ``folder`` one that is training still."""
    (folder / "summary.json").unlink()
    begun = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**begun, **values}))


def test_a_run_without_a_summary_is_shown_as_far_as_it_came(runs: Path, run_report: Command) -> None:
    begin(runs / "b", label="baseline num_envs=2", kind=["changes the algorithm"], seed=5)
    code, shown, errors = run_report(runs)
    assert code == 0 and errors == ""
    (row,) = (row for row in rows_of(shown)[0] if row["rung"] == "`baseline num_envs=2`")
    assert row["kind"] == "algorithm"
    assert row["seeds"] == "5" and row["remarks"] == "not finished: still running or killed"
    assert row["mean return"] == f"{read_metrics(runs / 'b')[0][-1]['episode/return_mean_100']:.1f}"
    assert "1 of 2 runs have ended; 1 was killed." in shown
    begin(runs / "a")
    (runs / "a" / "run.json").write_text("")
    code, shown, errors = run_report(runs)
    assert code == 1 and len(rows_of(shown)[0]) == 1  # nobody knows what a is
    assert errors.startswith(f"dqnspeed: {runs / 'a' / 'run.json'}: is damaged (")


def test_a_run_that_ended_in_its_warm_up_has_no_speed(runs: Path) -> None:
    change(runs / "a", updates_per_second=0.0, steps_per_second=900.0)
    reports, _ = read_metrics(runs / "a")
    write_metrics(runs / "a", *({key: one[key] for key in one if key != "train/updates"} for one in reports))
    short, whole = (read_run(runs / name) for name in "ab")
    assert short.summary["steps_per_second"] is short.summary["samples_per_step"] is None
    assert whole.curve("perf/steps_per_second", "time", skip_warm_up=True)
    assert short.curve("perf/steps_per_second", "time", skip_warm_up=True) == []
    (rung,) = rungs_of([short, whole])
    assert rung.steps_per_second is not None and rung.steps_per_second.value == whole.summary["steps_per_second"]


def test_the_order_of_overrides_makes_no_other_rung(runs: Path) -> None:
    for name, label in (("a", "baseline num_envs=2 model=mlp"), ("b", "baseline model=mlp num_envs=2")):
        change(runs / name, label=label)
    assert len(rungs_below(runs)) == 1
    for name, sizes in (("a", "[64, 128, 32]"), ("b", "[128, 64, 32]")):
        change(runs / name, label=f"baseline model.hidden={sizes}")
    assert len(rungs_below(runs)) == 2


def test_a_time_to_solve_without_evaluations_says_so_and_names_that_with_them(runs: Path) -> None:
    """A run that was solved after 8 s of training and 237 s of evaluations, beside one that has evaluated nothing."""
    change(runs / "a", label="evaluated", solved=True, stopped_by="reward_bound", reward_bound=0.8, time_to_solve_s=8.0,
           wall_time_s=245.0, eval_time_s=237.0)  # fmt: skip
    run, other = read_run(runs / "a"), read_run(runs / "b")
    assert (run.seconds, run.eval_seconds, run.time_to_solve) == (8.0, 237.0, (8.0, True)) and other.eval_seconds == 0
    said = "8.0 s of training, 4.1 min with evaluations"
    assert said in rung_table(rungs_of([run]), None).markdown()
    assert run_table([run]).rows[0][-1] == "8 s of training, 4.1 min with evaluations"
    assert any(said in sentence for sentence in headlines(rungs_of([run]), None))
    assert "with evaluations" not in rung_table(rungs_of([other]), None).markdown()


def test_evaluations_count_where_they_say_whether_a_run_is_solved(runs: Path) -> None:
    for name, on in (("a", "eval"), ("b", "train")):
        change(runs / name, label=name, eval_return_mean=0.75, return_mean_100=0.25)
        (runs / name / "config.json").write_text(json.dumps({"stop": {"on": on}}))
        with (runs / name / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": 400, "time": 60.0, "eval/return_mean": 0.5}) + "\n")
    evaluated, trained = (read_run(runs / name) for name in "ab")
    assert (evaluated.mean_return, trained.mean_return) == (0.75, 0.25)
    assert evaluated.mean_returns("step") == [(400, 0.5)] and trained.mean_returns("step")[-1][0] < 400
    notes = {figure.note for figure in figures_of(rungs_of([evaluated, trained])) if figure.name.startswith("return_")}
    assert all("or with stop.on=eval of each evaluation" in note for note in notes)


def test_a_mean_curve_holds_what_ended_and_not_what_is_under_way(runs: Path) -> None:
    for name, values in (("a", {60.0: 10.0}), ("b", {60.0: 10.0, 600.0: 20.0})):
        lines = [{"step": int(time), "time": time, "episode/return_mean_100": mean} for time, mean in values.items()]
        write_metrics(runs / name, {**lines[0], "time": 0.0}, *lines)
        change(runs / name, seed=ord(name))
    for ended, last in (("max_minutes", 15.0), ("SIGINT", 20.0)):
        change(runs / "a", stopped_by=ended)
        figures = {figure.name: figure for figure in figures_of(rungs_below(runs))}
        (mean,) = (series for series in figures["return_by_time"].series if series.kind == "mean")
        assert mean.y[-1] == pytest.approx(last)
        assert "2 seeds each" in figures["return_by_time"].note


def test_a_run_that_was_ended_early_has_no_score_after_a_time_that_it_was_not_trained(runs: Path) -> None:
    for name, times in (("a", (60.0,)), ("b", (60.0, 600.0))):
        write_metrics(runs / name, *({"step": int(at), "time": at, "episode/return_mean_100": at} for at in times))
        change(runs / name, seed=ord(name), wall_time_s=times[-1], stopped_by="max_minutes")
    for ended, compared, score in (("max_minutes", 2, 60.0), ("pruned", 1, 600.0), ("error", 1, 600.0)):
        change(runs / "a", stopped_by=ended)
        (rung,) = rungs_below(runs)
        assert len(rung.scores) == compared and rung.score is not None and rung.score.value == score


def test_runs_that_end_milliseconds_apart_are_compared_by_their_last_reports(runs: Path, run_report: Command) -> None:
    shutil.copytree(runs / "a", runs / "c")
    last = {"a": (24.012, 85.7, 80.0), "b": (24.013, 92.1, 73.35), "c": (24.010, 88.4, 75.0)}
    for seed, (name, (end, mean, before)) in enumerate(last.items()):
        lines = [{"step": int(time), "time": time, "episode/return_mean_100": value}
                 for time, value in ((20.0, before), (end, mean))]  # fmt: skip
        (runs / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        change(runs / name, seed=seed, wall_time_s=end, stopped_by="max_minutes", reward_bound=475.0, solved=False)
    (rung,) = rungs_of(list(map(read_run, runs_below([runs]))))
    assert len(rung.scores) == 3 and rung.score is not None
    assert rung.score.value == pytest.approx((85.7 + 92.1 + 88.4) / 3, abs=0.01)
    _, shown, _ = run_report(runs)
    assert "Mean return in toy_envs:Counter after 24 s: 88.7." in shown


def test_below_five_seeds_a_side_nothing_has_an_interval(runs: Path, run_report: Command) -> None:
    for count, compared in ((4, "100%"), (5, "100% [100%, 100%]")):
        for rung, mean in (("baseline", 1.0), ("process", 2.0)):
            for seed in range(count):
                folder = runs / "sweep" / f"{rung}_{seed}"
                shutil.copytree(runs / "a", folder, dirs_exist_ok=True)
                write_metrics(folder, {"step": 1, "time": 1.0, "episode/return_mean_100": mean})
                change(folder, seed=seed, label=rung, wall_time_s=2.0, solved=True, stopped_by="reward_bound")
        _, shown, _ = run_report(runs / "sweep")
        text = (runs / "sweep" / "report.md").read_text()
        _, statistics, _, _ = rows_of(text)
        assert statistics[1]["better than the baseline"] == compared
        assert bool(re.search(r"\d \[\d", shown)) == (count == 5)


def test_the_newest_run_is_reported(runs: Path, run_report: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    code, shown, errors = run_report()
    assert (code, shown) == (2, "") and errors.startswith("dqnspeed: outputs/ and multirun/: hold no run; ")
    shutil.copytree("a", "multirun/day/time/0")
    shutil.copytree("a", "multirun/day/time/1")
    Path("multirun/day/time/multirun.yaml").touch()
    shutil.copytree("b", "outputs/day/time")
    os.utime("outputs/day/time/metrics.jsonl", (1e9, 1e9))
    code, shown, errors = run_report()
    assert code == 0 and len(rows_of(shown)[1]) == 2 and Path("multirun/day/time/report.html").exists()
    assert errors == "dqnspeed: reports the newest, multirun/day/time\n"
    begin(Path("outputs/day/time"))
    os.utime("outputs/day/time/metrics.jsonl")
    code, shown, errors = run_report()
    assert code == 0 and len(rows_of(shown)[0]) == 1 and "not finished" in shown
    assert errors == "dqnspeed: reports the newest, outputs/day/time\n"


def test_curves_of_cut_files_are_drawn_as_far_as_they_go(runs: Path, run_report: Command) -> None:
    for name in ("metrics.jsonl", "episodes.csv"):
        data = (runs / "a" / name).read_bytes()
        (runs / "a" / name).write_bytes(data[: data.rindex(b"0.") - 3])
    (runs / "b" / "episodes.csv").unlink()
    code, shown, errors = run_report(runs)
    assert code == 1 and len(rows_of(shown)[1]) == 2
    page = (runs / "report.html").read_text()
    assert '"name":"return_by_time"' in page and "episodes.csv: cannot be read" in page
    for name in ("metrics.jsonl", "episodes.csv"):
        assert f"dqnspeed: {runs / 'a' / name}: is damaged; 1 of its " in errors
    assert f"dqnspeed: {runs / 'b' / 'episodes.csv'}: cannot be read (No such file or directory)." in errors


def test_without_plotly_tables_are_left(runs: Path, run_report: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    code, shown, errors = run_report(runs)
    assert (code, errors) == (0, "") and len(rows_of(shown)[1]) == 2
    assert (runs / "report.md").exists() and not (runs / "report.html").exists()
    assert "report.html needs plotly. pip install 'dqnspeed[report]'" in shown
    code, shown, errors = run_report(runs, "watch=true")
    assert code == 2 and errors.startswith("dqnspeed: watch=true: needs plotly.")


def test_a_run_that_failed_before_it_trained_is_told_with_its_reason(runs: Path, run_report: Command) -> None:
    shutil.rmtree(runs / "b")
    (runs / "b").mkdir()
    numbers = "steps_per_second", "updates_per_second", "samples_per_step", "return_mean_100", "time_to_solve_s"
    failed = {"label": "baseline model=mlp", "kind": [], "seed": 3, "solved": False, **dict.fromkeys(numbers),
              "stopped_by": "error", "error": "env.id=x: there is no such game."}  # fmt: skip
    (runs / "b" / "summary.json").write_text(json.dumps(failed))
    code, shown, errors = run_report(runs)
    assert (code, errors) == (0, "")
    ((row,), _) = rows_of(shown)
    assert row["seeds"] == "0, 3" and row["remarks"] == "failed: env.id=x: there is no such game. (1 of 2)"
    assert "Failed: 1 of 2 runs. Their remarks give the reasons." in shown
    (runs / "b" / "summary.json").write_text(json.dumps({"stopped_by": "error", "error": "no space."}))
    _, _, errors = run_report(runs)  # before it was composed
    assert errors == f"dqnspeed: {runs / 'b'}: failed before it began (no space).\n"


def test_a_folder_that_cannot_be_written_is_named_and_the_table_shown(runs: Path, run_report: Command) -> None:
    (runs / "file").touch()
    code, shown, errors = run_report(runs / "a", f"out={runs / 'file'}")
    assert (code, shown) == (2, "") and errors.startswith(f"dqnspeed: out={runs / 'file'}: cannot be made (")
    (runs / "link").symlink_to("nowhere")
    _, _, errors = run_report(runs / "a", f"out={runs / 'link'}")
    assert f"cannot be made ({runs / 'link'} is a link to nowhere, which does not exist; make that" in errors
    (runs / "a" / "report.html").mkdir()
    code, shown, errors = run_report(runs / "a")
    assert code == 1 and rows_of(shown)
    assert errors.startswith(f"dqnspeed: {runs / 'a' / 'report.html'}: cannot be written (Is a directory). Name anoth")


def test_a_full_disk_is_named_by_the_folder(runs: Path, run_report: Command) -> None:
    with file_size_limit(100):
        code, shown, errors = run_report(runs / "a")
    assert code == 1 and rows_of(shown)
    assert errors.startswith(f"dqnspeed: {runs / 'a'}: cannot be written (File too large). Name another folder")


def test_options_are_no_folders(runs: Path, run_report: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    (runs / "a").rename("num_envs=2")
    code, shown, errors = run_report("num_envs=2", "./b")
    assert code == 0 and len(rows_of(shown)[1]) == 2 and errors == ""
    for wrong, *others in (["--title", "One"], ["titel=One"]):
        code, shown, errors = run_report("b", wrong, *others)
        assert (code, shown) == (2, "") and errors.startswith(f"dqnspeed: {wrong}: is no option (nearest: title); ")


def test_long_numbers_in_names_are_rounded_if_that_tells_them_apart() -> None:
    labels = ["a num_envs=2 lr=0.0012520653814999472", "a num_envs=2 lr=0.30000", "a num_envs=2 lr=1.450382e-05 seed=1"]
    assert short_names(labels) == ["a lr=0.001252", "a lr=0.3", "a lr=1.45e-05 seed=1"]
    assert short_names([*labels, "a num_envs=2 lr=0.00125206"])[0] == "a lr=0.0012520653814999472"
    assert short_names(labels[:1]) == ["a num_envs=2 lr=0.001252"]
    assert shared_overrides(labels) == ["num_envs=2"] and shared_overrides(labels[:1]) == []


def test_a_damaged_machine_is_left_out(runs: Path, run_report: Command) -> None:
    change(runs / "a", machine="x", versions=[1])
    code, shown, errors = run_report(runs)
    assert (code, errors) == (0, "") and "baseline" in shown
