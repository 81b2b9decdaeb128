"""A lock on a run's folder: one run, and one process at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from dqnspeed.config.options import ConfigError
from dqnspeed.system import atomic
from dqnspeed.tracking.run_folder import LOCK, check_links, holds_run

log = logging.getLogger(__name__)

_THREADS: dict[Path, int] = {}  # the thread that has locked a folder, since the system tells only processes apart


def new_folder(path: Path) -> Path:
    """Make ``path``, or where that exists ``path_2``, ``path_3``, ...; no two processes get the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder, number = path, 1
    while True:
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
            folder = path.with_name(f"{path.name}_{number}")
        else:
            return folder


def _lock(file: IO[bytes]) -> None:
    """Lock ``file`` for this process, where flock would lock the open file; raises :class:`BlockingIOError`."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno == errno.EACCES:  # as some file systems say it
            raise BlockingIOError(*error.args) from error
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP):
            raise
        log.warning("%s: this file system locks no files; that no other run writes here is not checked.", file.name)


def is_locked(folder: Path) -> bool | None:
    """Whether a process has locked ``folder``; ``None`` if unknown.

    A run that locks the folder in the very microseconds of the question is refused.
    """
    if folder.resolve() in _THREADS:  # closing the file below would release the lock of this process
        return True
    try:
        file = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError as error:
        return True if error.errno in (errno.EAGAIN, errno.EACCES) else None
    finally:
        os.close(file)


@contextlib.contextmanager
def locked_folder(folder: Path, resumed: bool) -> Iterator[None]:
    """Lock ``folder`` for this thread; the system releases the lock when the process ends.

    A thread may lock a folder twice; the first of the two blocks to end releases it.

    Raises:
        ConfigError: a new run finds another run there; the run to be resumed is still running, or its folder cannot
            be written or has links that lead out of it.
    """
    with contextlib.ExitStack() as stack:
        try:
            owner = _THREADS.setdefault(folder.resolve(), threading.get_ident())
            if owner != threading.get_ident():
                raise BlockingIOError
            stack.callback(_THREADS.pop, folder.resolve(), None)
            lock = stack.enter_context(atomic.open_regular(folder / LOCK, "ab"))
            _lock(lock)
        except BlockingIOError as error:
            if resumed:
                raise ConfigError(f"{folder}: another process still writes there. Wait for it, or end it.") from error
            raise ConfigError(f"{folder}: another run is being written there; name a new folder.") from error
        except OSError as error:
            raise ConfigError(f"{folder}: cannot be written ({error.strerror}).") from error
        check_links(folder)
        if not resumed and holds_run(folder):
            raise ConfigError(f"{folder} holds another run already; name a new folder.")
        yield
