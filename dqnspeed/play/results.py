"""``play.json``: the results of all calls of ``play`` on a run."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dqnspeed.config.options import ConfigError
from dqnspeed.system import atomic
from dqnspeed.tracking.run_folder import PLAYED


def earlier(folder: Path) -> list[Any]:
    """The contents of the run's ``play.json``; a damaged one is renamed with a message."""
    path = folder / PLAYED
    try:
        results = json.loads(path.read_text())
        if isinstance(results, list):
            return results
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from error
    except ValueError:
        pass
    names = (path.with_suffix(f".json.damaged{number or ''}") for number in itertools.count())
    aside = next(name for name in names if not name.exists())
    try:
        os.replace(path, aside)
    except FileNotFoundError:  # another process has set it aside
        return []
    except OSError as error:
        raise ConfigError(f"{path}: is damaged and cannot be set aside ({error.strerror}).") from error
    print(f"{path} is damaged; it is kept as {aside.name}, and a new one is started.", flush=True)
    return []


def keep(folder: Path, result: dict[str, Any]) -> None:
    """Add ``result`` to the run's ``play.json``, a list with one entry a call."""
    path = folder / PLAYED
    try:
        with _alone(folder):
            atomic.write_json(path, [*earlier(folder), result])
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written, so this result is not kept ({error.strerror}).") from error


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process is here with this folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # not every file system locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
