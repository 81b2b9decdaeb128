"""Writing files: whole or not at all, even if the machine loses power; and appending, to regular files alone."""

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

PARTIAL = ".partial"  # suffix of a file that is still being written
NO_FILE = "a link, or no regular file"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write, which replaces ``path`` when the block ends without an error.

    Raises:
        OSError: it could not be written; ``path`` is unchanged.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}{PARTIAL}")  # another process may write the same file
    partial.unlink(missing_ok=True)
    mode = _usual_mode(partial)
    try:
        yield partial
        partial.chmod(mode)  # safetensors chooses one that only its owner can read
        flush(partial)
        os.replace(partial, path)
        with contextlib.suppress(OSError):  # not every file system can, and the file is there
            flush(path.parent)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _usual_mode(path: Path) -> int:
    """The mode of a new file at ``path``, where there is none, by the umask of this process."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    path.unlink()
    mode = stat.S_IMODE(os.fstat(handle).st_mode)
    os.close(handle)
    return mode


def opened(path: Path, mode: str, buffering: int = -1) -> IO[bytes]:
    """Open the file ``path`` itself: through a link another file would be changed.

    Args:
        mode: of :func:`open`, in bytes; ``buffering``: as there.

    Raises:
        OSError: it is a link or no regular file, or cannot be opened.
    """

    def opener(name: str, flags: int) -> int:
        if os.path.lexists(name) and not stat.S_ISREG(os.lstat(name).st_mode):
            raise OSError(errno.EINVAL, NO_FILE, name)
        return os.open(name, flags | os.O_NOFOLLOW, 0o666)

    return cast("IO[bytes]", open(path, mode, buffering=buffering, opener=opener))


def clear(folder: Path) -> None:
    """Delete what processes that were killed left half written in ``folder``, where nobody else writes."""
    for partial in folder.glob(f"*{PARTIAL}"):
        partial.unlink()


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path``, in UTF-8, with question marks for parts of file names that are none; raises as
    :func:`replacing` does."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="replace")


def write_json(path: Path, node: Any) -> None:
    """Write ``node`` as JSON; NaN and infinity become null."""
    write_text(path, json_text(node))


def json_text(node: Any) -> str:
    """``node`` as JSON; NaN and infinity become null."""
    return json.dumps(finite(node), indent=2) + "\n"


def finite(node: Any) -> Any:
    """``node`` with ``None`` in place of every number that is not finite."""
    if isinstance(node, Mapping):
        return {key: finite(value) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [finite(value) for value in node]
    return None if isinstance(node, float) and not math.isfinite(node) else node


def flush(path: Path) -> None:
    """Wait until the file or folder ``path`` is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        whole = getattr(fcntl, "F_FULLFSYNC", None)  # of macOS, whose fsync leaves it in the memory of the drive
        with contextlib.suppress(OSError):
            if whole is not None:
                fcntl.fcntl(handle, whole)
                return
        os.fsync(handle)
    finally:
        os.close(handle)
