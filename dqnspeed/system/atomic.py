"""Atomic writes, which leave the old or the new file even after a power failure, and safe opening of regular files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

PARTIAL = ".partial"  # suffix of unfinished files
NOT_REGULAR = "a link, or no regular file"


@contextlib.contextmanager
def replace(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file to write; it replaces ``path`` if the block ends without an error.

    Raises:
        OSError: the file could not be written; ``path`` is unchanged.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}{PARTIAL}")  # another process may write the same file
    partial.unlink(missing_ok=True)
    partial.touch(exist_ok=False)
    mode = stat.S_IMODE(partial.stat().st_mode)  # by the umask
    try:
        yield partial
        partial.chmod(mode)  # safetensors makes files that only their owner can read
        flush(partial)
        os.replace(partial, path)
        with contextlib.suppress(OSError):  # not every file system can flush folders
            flush(path.parent)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def open_regular(path: Path, mode: str, buffering: int = -1) -> IO[bytes]:
    """Open a regular file, but not through a link, because another file would be changed.

    Args:
        mode, buffering: as for :func:`open`; ``mode`` is binary.

    Raises:
        OSError: ``path`` is a link, is no regular file, or cannot be opened.
    """

    def opener(name: str, flags: int) -> int:
        if os.path.lexists(name) and not stat.S_ISREG(os.lstat(name).st_mode):
            raise OSError(errno.EINVAL, NOT_REGULAR, name)
        return os.open(name, flags | os.O_NOFOLLOW, 0o666)

    return cast("IO[bytes]", open(path, mode, buffering=buffering, opener=opener))


def clear(folder: Path) -> None:
    """Delete unfinished files of killed processes in ``folder``, where no other process writes."""
    for partial in folder.glob(f"*{PARTIAL}"):
        partial.unlink()


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` in UTF-8, with question marks for undecodable parts of file names.

    Raises:
        OSError: the file could not be written; ``path`` is unchanged.
    """
    with replace(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="replace")


def write_json(path: Path, node: Any) -> None:
    """Write ``node`` as JSON; NaN and infinity become null."""
    write_text(path, json_text(node))


def json_text(node: Any) -> str:
    """``node`` as JSON; NaN and infinity become null."""
    return json.dumps(nan_to_none(node), indent=2) + "\n"


def nan_to_none(node: Any) -> Any:
    """``node`` with ``None`` in place of NaN and infinity."""
    if isinstance(node, Mapping):
        return {key: nan_to_none(value) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [nan_to_none(value) for value in node]
    return None if isinstance(node, float) and not math.isfinite(node) else node


def flush(path: Path) -> None:
    """Wait until the file or folder ``path`` is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        whole = getattr(fcntl, "F_FULLFSYNC", None)  # macOS, where fsync leaves data in the memory of the drive
        with contextlib.suppress(OSError):
            if whole is not None:
                fcntl.fcntl(handle, whole)
                return
        os.fsync(handle)
    finally:
        os.close(handle)
