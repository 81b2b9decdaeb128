"""A run's folder belongs to one run, and to one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from dqnspeed.options import ConfigError


@contextlib.contextmanager
def claimed(folder: Path, resumed: bool) -> Iterator[None]:
    """Hold ``folder`` for this process; the system lets go of it however the process ends.

    Raises:
        ConfigError: a new run finds another run there; the run to be resumed is still running, or its folder cannot
            be written.
    """
    with contextlib.ExitStack() as held:
        try:
            lock = held.enter_context((folder / ".lock").open("a"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"resume={folder}: this run is still running.") from error
        except OSError as error:
            raise ConfigError(f"{folder}: cannot be written ({error.strerror}).") from error
        if not resumed and (folder / "metrics.jsonl").exists():
            raise ConfigError(f"{folder} holds another run already; name a new folder.")
        yield
