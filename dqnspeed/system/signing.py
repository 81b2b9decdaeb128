"""Signatures of JSON files that this user wrote on this machine, by a key that never leaves it."""

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

SUFFIX = ".hmac"  # of the file beside a signed one
KEY_BYTES = 32


def write(path: Path, node: Any) -> None:
    """Write ``node`` as JSON and, where this user can have a key, a file with its signature.

    The signature of the file before stays too, so that a kill in between leaves a signed file.

    Raises:
        OSError: the file could not be written.
    """
    text = atomic.json_text(node)
    with contextlib.suppress(_NoKeyError):
        beside, own = _beside(path), _signature(path, text.encode(), _key(make=True))
        before = [other for other in _signatures(beside)[:1] if other != own]
        atomic.write_text(beside, "\n".join([own, *before, ""]))
    atomic.write_text(path, text)


def read(path: Path) -> Any:
    """The contents of a file that :func:`write` wrote, unless it was changed since, in any folder; else ``None``."""
    with contextlib.suppress(_NoKeyError, OSError, ValueError, RecursionError):
        data = path.read_bytes()
        own = _signature(path, data, _key(make=False))
        if any(hmac.compare_digest(own, known) for known in _signatures(_beside(path))):
            return json.loads(data)
    return None


def problem() -> str:
    """Why this user can sign nothing here; empty if that is possible."""
    try:
        _key(make=True)
    except _NoKeyError as error:
        return str(error)
    return ""


class _NoKeyError(Exception):
    """There is no key, and none can be made."""


def _key(make: bool) -> bytes:
    """The key of this user, which the first process that needs it makes."""
    try:
        path = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state", "dqnspeed", "key")
    except RuntimeError as error:
        raise _NoKeyError("no folder for a key: there is no home folder") from error
    try:
        if make and not path.exists():
            _make_key(path)
        key = path.read_bytes()
    except OSError as error:
        raise _NoKeyError(f"{path}: {error.strerror}") from error
    if len(key) != KEY_BYTES:
        raise _NoKeyError(f"{path}: is damaged; delete it")
    return key


def _make_key(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, made = tempfile.mkstemp(dir=path.parent)  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        atomic.flush(Path(made))
        with contextlib.suppress(FileExistsError):  # another process was first, and its key counts
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
