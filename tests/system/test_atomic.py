"""Files written whole or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dqnspeed.system import atomic


def test_a_file_that_could_not_be_written_leaves_the_one_before_it(tmp_path: Path) -> None:
    path = tmp_path / "it.json"
    atomic.write_json(path, {"a": float("nan"), "b": [1, "ü"]})
    whole = path.read_text(encoding="utf-8")
    with pytest.raises(OSError, match="no space"), atomic.replacing(path) as partial:
        partial.write_text("half")
        raise OSError("no space")
    assert path.read_text(encoding="utf-8") == whole and [*tmp_path.iterdir()] == [path]
    with pytest.raises(FileNotFoundError), atomic.replacing(path):
        pass  # nothing was written
    assert path.read_text(encoding="utf-8") == whole


def test_two_files_that_differ_in_their_suffix_do_not_meet_while_they_are_written(tmp_path: Path) -> None:
    with atomic.replacing(tmp_path / "it.json") as one, atomic.replacing(tmp_path / "it.yaml") as other:
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "it.json").read_text() == "one" and (tmp_path / "it.yaml").read_text() == "other"


def test_two_processes_that_write_one_file_leave_one_of_the_two(tmp_path: Path) -> None:
    path = tmp_path / "it.txt"
    write = "import sys, pathlib; from dqnspeed.system import atomic; atomic.write_text(pathlib.Path(sys.argv[1]), 'b')"
    with atomic.replacing(path) as partial:
        partial.write_text("a")
        subprocess.run([sys.executable, "-c", write, path], check=True)
        assert path.read_text() == "b" and partial.read_text() == "a"
    assert path.read_text() == "a" and [*tmp_path.iterdir()] == [path]


def test_names_of_files_that_are_no_text_are_written_with_question_marks(tmp_path: Path) -> None:
    atomic.write_text(tmp_path / "page", "a\udcffb")
    assert (tmp_path / "page").read_text() == "a?b"
