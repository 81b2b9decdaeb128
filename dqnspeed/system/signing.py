"""Signed JSON files: a key on this machine proves that this user wrote them here."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import tempfile
from pathlib import Path
from typing import Any

from dqnspeed.system import atomic

SUFFIX = ".hmac"  # of a file with signatures
KEY_BYTES = 32


def write(path: Path, node: Any) -> None:
    """Write ``node`` as JSON and, if this user can have a key, a second file with its signature.

    The signature of the former file is kept, so that a kill between the two writes leaves a signed file.

    Raises:
        OSError: a file could not be written.
    """
    text = atomic.json_text(node)
    if key := _key(make=True):
        beside, own = _beside(path), _signature(path, text.encode(), key)
        before = [other for other in _signatures(beside)[:1] if other != own]
        atomic.write_text(beside, "\n".join([own, *before, ""]))
    atomic.write_text(path, text)


def read(path: Path) -> Any:
    """The contents of a file that :func:`write` wrote, in any folder; ``None`` if the file was changed since."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        data, key = path.read_bytes(), _key(make=False)
        own = _signature(path, data, key)
        if key and any(hmac.compare_digest(own, known) for known in _signatures(_beside(path))):
            return json.loads(data)
    return None


def _key(make: bool) -> bytes:
    """The key of this user, which the first process that needs the key makes; empty if there is none."""
    with contextlib.suppress(OSError, RuntimeError):  # a folder that cannot be written, or no home folder
        path = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state", "dqnspeed", "key")
        if make and not path.exists():
            _make_key(path)
        key = path.read_bytes()
        return key if len(key) == KEY_BYTES else b""
    return b""


def _make_key(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, made = tempfile.mkstemp(dir=path.parent)  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        atomic.flush(Path(made))
        with contextlib.suppress(FileExistsError):  # another process was first
            os.link(made, path)
    finally:
        Path(made).unlink()


def _signature(path: Path, data: bytes, key: bytes) -> str:
    return hmac.new(key, path.name.encode() + b"\0" + data, hashlib.sha256).hexdigest()


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}{SUFFIX}")


def _signatures(beside: Path) -> list[str]:
    with contextlib.suppress(OSError, ValueError):
        return beside.read_text(encoding="ascii").split()
    return []
