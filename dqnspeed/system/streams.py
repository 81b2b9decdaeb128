"""Output that nobody may take any more: a terminal that is closed, a pipe whose reader has left, a full disk."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO, cast


class Lasting:
    """A stream like the one it writes to, but for what cannot be written: that is left out."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def end(self) -> None:
        """Write what waits, or leave it out: else Python would fail at its own end."""
        with contextlib.suppress(ValueError):  # it is closed
            self._try(self._stream.flush, last=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _try(self, act: Callable[[], Any], last: bool = False) -> None:
        try:
            act()
        except OSError as error:
            if last or error.errno in (errno.EPIPE, errno.EIO):  # for good; what waits would fail at the end
                with contextlib.suppress(OSError), open(os.devnull, "w") as nowhere:
                    os.dup2(nowhere.fileno(), self._stream.fileno())


@contextlib.contextmanager
def lasting_streams() -> Iterator[None]:
    """What is printed inside and cannot be written ends nothing."""
    before = sys.stdout, sys.stderr
    outlast_readers()
    inside = sys.stdout, sys.stderr
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in inside:
            if isinstance(stream, Lasting):
                stream.end()


def outlast_readers() -> None:
    """From now on what is printed in this process and cannot be written ends nothing."""
    # A stream that is closed from the start is None, into which print() writes nothing.
    sys.stdout, sys.stderr = (stream and cast("TextIO", Lasting(stream)) for stream in (sys.stdout, sys.stderr))
