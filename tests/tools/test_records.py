"""The tables of ``RECORDS.md``."""

from __future__ import annotations

import records


def test_tables_agree_with_the_rows_they_are_made_of() -> None:
    page = records.PAGE.read_text(encoding="utf-8")
    assert records.with_tables(page, records.rows()) == page


def test_every_row_names_its_run() -> None:
    for row in records.rows():
        assert row["table"] in {*records.TABLES, "tuning"}
        assert all(row[column] for column in records.COLUMNS if column not in ("notes", "result")), row
