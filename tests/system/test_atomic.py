"""Files written whole or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dqnspeed.system import atomic


def test_a_file_that_could_not_be_written_leaves_the_one_before_it(tmp_path: Path) -> None:
    path = tmp_path / "it.json"
    atomic.write_json(path, {"a": float("nan"), "b": [1, "ü"]})
    whole = path.read_text(encoding="utf-8")
    with pytest.raises(OSError, match="no space"), atomic.replace(path) as partial:
        partial.write_text("half")
        raise OSError("no space")
    assert path.read_text(encoding="utf-8") == whole and [*tmp_path.iterdir()] == [path]


def test_two_processes_that_write_one_file_leave_one_of_the_two(tmp_path: Path) -> None:
    path = tmp_path / "it.txt"
    write = "import sys, pathlib; from dqnspeed.system import atomic; atomic.write_text(pathlib.Path(sys.argv[1]), 'b')"
    with atomic.replace(path) as partial:
        partial.write_text("a")
        subprocess.run([sys.executable, "-c", write, path], check=True)
        assert path.read_text() == "b" and partial.read_text() == "a"
    assert path.read_text() == "a" and [*tmp_path.iterdir()] == [path]


def test_names_of_files_that_are_no_text_are_written_with_question_marks(tmp_path: Path) -> None:
    atomic.write_text(tmp_path / "page", "a\udcffb")
    assert (tmp_path / "page").read_text() == "a?b"


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_file_has_the_mode_that_the_umask_says_whatever_writes_it(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        with atomic.replace(tmp_path / "it") as partial:
            partial.touch(0o600)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "it").stat().st_mode) == 0o666 & ~umask


def test_what_is_half_written_is_no_file_that_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    (tmp_path / f"it.{os.getpid()}.partial").symlink_to(tmp_path / "kept")
    atomic.write_text(tmp_path / "it", "new")
    assert (tmp_path / "kept").read_text() == "kept" and not (tmp_path / "it").is_symlink()


def test_only_regular_files_are_opened_to_be_changed(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    for name, target in (("link", "kept"), ("dangling", "nothing")):
        (tmp_path / name).symlink_to(tmp_path / target)
    os.mkfifo(tmp_path / "pipe")  # which would be waited for
    for name in ("link", "dangling", "pipe"):
        for mode in ("ab", "a+b", "rb+"):
            with pytest.raises(OSError, match="a link, or no regular file"):
                atomic.open_regular(tmp_path / name, mode)
    assert (tmp_path / "kept").read_text() == "kept" and not (tmp_path / "nothing").exists()
    with atomic.open_regular(tmp_path / "new", "ab") as file:
        file.write(b"new")
    assert (tmp_path / "new").read_text() == "new"
