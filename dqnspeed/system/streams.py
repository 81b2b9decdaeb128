"""Output that nobody may take any more: a terminal that is closed, a pipe whose reader has left, a full disk."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO, cast


class Lasting:
    """A stream that writes to another one until the first error, and then writes nothing."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _try(self, act: Callable[[], Any]) -> None:
        try:
            act()
        except BlockingIOError:
            pass  # it is written later
        except OSError:
            # What waits would fail at the end, and Python with it.
            with contextlib.suppress(OSError), open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())


def outlast_readers() -> None:
    """From now on what is printed in this process and cannot be written ends nothing."""
    # A stream that is closed from the start is None, into which print() writes nothing.
    sys.stdout, sys.stderr = (stream and cast("TextIO", Lasting(stream)) for stream in (sys.stdout, sys.stderr))
