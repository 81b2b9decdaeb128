"""bench.json: what is written is read, and what is damaged is named."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from made import make_result

from dqnspeed.bench import result as results
from dqnspeed.tracking.run_folder import DamagedError


def test_what_is_written_is_read(tmp_path: Path) -> None:
    result = make_result()
    results.write(result, tmp_path / "bench.json")
    assert results.read(tmp_path) == results.read(tmp_path / "bench.json") == result


def test_a_file_that_is_cut_anywhere_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    results.write(make_result(), path)
    text = path.read_text()
    for length in range(0, len(text) - 2, len(text) // 40):
        path.write_text(text[:length])
        with pytest.raises(DamagedError, match=rf"{path}: is damaged \(line {text[:length].count(chr(10)) + 1}:"):
            results.read(path)


@pytest.mark.parametrize(
    ("keys", "value", "sentence"),
    [
        (("suite",), None, r"\(suite is null\)"),
        (("measurements", 3, "pairs", 1), [1.0, "fast"], r"\(measurements\[3\]\.pairs\[1\]\[1\] is \"fast\"\)"),
        (("measurements", 3, "ratio", "low"), True, r"\(measurements\[3\]\.ratio\.low is true\)"),
        (("recommendation", "expected"), {"median": 1.0, "low": 1.0}, r"\(recommendation\.expected\.high is missing\)"),
        (("schema",), 2, r"has schema 2, and this version reads 1"),
    ],
)
def test_a_value_of_another_type_is_named_by_its_key(
    keys: tuple[Any, ...], value: object, sentence: str, tmp_path: Path
) -> None:
    node: Any = json.loads(json.dumps(dataclasses.asdict(make_result())))
    inner = node
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    (tmp_path / "bench.json").write_text(json.dumps(node))
    with pytest.raises(DamagedError, match=sentence):
        results.read(tmp_path)


def test_other_files_are_no_results(tmp_path: Path) -> None:
    for content in (b"[]", b"{}", b"null", b"\xff\xfe", b'{"schema": "1"}'):
        (tmp_path / "bench.json").write_bytes(content)
        with pytest.raises(DamagedError):
            results.read(tmp_path)
    with pytest.raises(DamagedError, match="cannot be read"):
        results.read(tmp_path / "none.json")
