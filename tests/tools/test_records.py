"""The tables of ``RECORDS.md``."""

from __future__ import annotations

import records


def test_tables_agree_with_the_rows_they_are_made_of() -> None:
    page = records.PAGE.read_text(encoding="utf-8")
    assert records.with_tables(page, records.rows()) == page


def test_every_row_names_its_run() -> None:
    for row in records.rows():
        assert row["table"] in {*records.TABLES, *records.WITHOUT_TABLE}
        # Runs of before the file was kept by the tool have no commit, and not all of the rest.
        needed = set(records.COLUMNS) - {"notes", "result"} if row["commit"] else {"game"}
        assert all(row[column] for column in needed), row


def test_a_run_that_did_not_solve_its_game_counts_as_the_slowest() -> None:
    run = {"processor": "CPU", "command": "python -m dqnspeed.train env=pong seed=1"}
    solved = [run | {"seconds": seconds, "notes": "solved; quick"} for seconds in ("30", "20")]
    rows = [run | {"seconds": "60", "notes": "quick"}, *solved]
    assert list(records.times(rows))[2:] == ["| quick | CPU | 3 | 30 | 20 to not in 60 | `env=pong` |"]
