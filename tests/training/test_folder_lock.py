"""A run's folder belongs to one run at a time, of one thread."""

from __future__ import annotations

import errno
import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dqnspeed.config.options import ConfigError
from dqnspeed.training.folder_lock import locked_folder


def test_another_thread_of_the_process_is_refused_until_the_run_has_ended(tmp_path: Path) -> None:
    def lock(resumed: bool) -> None:
        with locked_folder(tmp_path / "x" / "..", resumed):
            pass

    (tmp_path / "x").mkdir()
    with ThreadPoolExecutor(1) as other:
        with locked_folder(tmp_path, resumed=False), locked_folder(tmp_path, resumed=False):
            with pytest.raises(ConfigError, match="another run is being written there; name a new folder"):
                other.submit(lock, False).result()
            with pytest.raises(ConfigError, match="another process still writes there"):
                other.submit(lock, True).result()
        other.submit(lock, False).result()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS])
def test_where_no_file_can_be_locked_runs_are_told_and_train(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "lockf", refused)
    with locked_folder(tmp_path, resumed=False):
        assert "locks no files" in caplog.text
