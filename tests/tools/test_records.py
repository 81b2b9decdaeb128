"""The tables of ``RECORDS.md``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import TOY

import dqnspeed
import records
from dqnspeed.config.options import ConfigError
from dqnspeed.report.runs import RUNNING


def test_tables_agree_with_the_rows_they_are_made_of() -> None:
    page = records.PAGE.read_text(encoding="utf-8")
    assert records.with_tables(page, records.read_csv(records.RUNS)) == page


def test_the_results_in_the_readme_are_those_of_the_tables() -> None:
    readme, tables = (path.read_text(encoding="utf-8") for path in (records.PAGE.with_name("README.md"), records.PAGE))
    row = r"^\| \[`(experiment=\w+)`\].* \| (AMD[^|]*) \| (\d+) s \| (.*) s \| (\d+) \|"
    found = re.findall(row, readme, re.MULTILINE)
    assert len(found) == 5
    for recipe, processor, median, ends, seeds in found:
        lines = [line for line in tables.splitlines() if f"{recipe} " in line and processor in line]
        if recipe == "experiment=standard":
            assert any(line.endswith(f"| {median} |") for line in lines)
        else:
            assert any(f"| {seeds} | {median} | {ends} |" in line for line in lines), (recipe, processor, median)
    [score] = re.findall(r"The median game reached ([\d.]+)\.", readme)
    assert f"| median of 26 games | | {score} |" in tables


def test_each_atari_game_has_one_row() -> None:
    for table, most in (("atari5", 5), ("atari26", 26)):
        games = [row["game"] for row in records.read_csv(records.RUNS) if row["table"] == table]
        assert 0 < len(games) == len(set(games)) <= most


def test_a_game_that_is_no_better_than_random_play_is_marked() -> None:
    rows = [{"game": "alien", "result": result, "steps": "9", "notes": ""} for result in ("227.8", "7000")]
    assert [line.split(" | ")[-1] for line in records.atari26(rows)][2:4] == [" |", "at or below random |"]


def test_every_row_names_its_run() -> None:
    for row in records.read_csv(records.RUNS):
        assert row["table"] in {*records.TABLES, *records.WITHOUT_TABLE}
        # Runs of before the file was kept by the tool have no commit, and not all of the rest.
        needed = set(records.COLUMNS) - {"notes", "result"} if row["commit"] else {"game"}
        assert all(row[column] for column in needed), row


def test_a_run_that_did_not_solve_its_game_counts_as_the_slowest() -> None:
    run = {"processor": "CPU", "command": "python -m dqnspeed.train env=pong seed=1"}
    solved = [run | {"seconds": seconds, "notes": "solved; quick"} for seconds in ("30", "20")]
    rows = [run | {"seconds": "60", "notes": "quick"}, *solved]
    assert list(records.times(rows))[2:] == ["| quick | CPU | 3 | 30 | 20 to not in 60 | `env=pong` |"]


def test_a_run_is_added_once_and_when_it_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "RUNS", tmp_path / "runs.csv")
    records.RUNS.write_text(f"{','.join(records.COLUMNS)}\n")
    dqnspeed.train([*TOY, "stop.max_steps=60"], folder=tmp_path / "run")
    records.main(["add", "tuning", str(tmp_path / "run"), "notes=a trial"])
    [row] = records.read_csv(records.RUNS)
    assert (row["table"], row["seed"], row["steps"]) == ("tuning", "0", "60")
    assert "mean of " in row["notes"] and row["notes"].endswith(" games; a trial")
    for folder, reason in ((tmp_path / "run", "is in runs.csv already"), (tmp_path / "nowhere", "hold no run")):
        with pytest.raises(ConfigError, match=reason):
            records.main(["add", "tuning", str(folder)])
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    (tmp_path / "run" / "summary.json").write_text(json.dumps({**summary, "stopped_by": RUNNING}))
    with pytest.raises(ConfigError, match="has not ended"):
        records.main(["add", "tried", str(tmp_path / "run")])
    assert records.read_csv(records.RUNS) == [row]
