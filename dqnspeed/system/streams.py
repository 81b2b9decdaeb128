"""Standard output that can no longer be written: a closed terminal, a closed pipe, a full disk."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO, cast


class TolerantStream:
    """A stream that writes to another one until the first error, and then writes nothing.

    Attributes:
        error: reason of the error; empty if there was none, or if the reader closed a pipe.
    """

    def __init__(self, stream: TextIO | None):
        # Python's stream is None if it was closed before the start.
        self._stream = open(os.devnull, "w") if stream is None else stream  # noqa: SIM115
        self.error = "it is closed" if stream is None else ""

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
            pass  # the text is written later
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                self.error = str(error.strerror)
            # Buffered text would fail again when Python exits.
            with contextlib.suppress(OSError), open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())


def tolerate_output_errors() -> None:
    """Continue if standard output or standard error can no longer be written."""
    sys.stdout, sys.stderr = (cast("TextIO", TolerantStream(stream)) for stream in (sys.stdout, sys.stderr))


def output_error() -> str:
    """Why standard output could not be written; empty if there was no error, or if its reader closed a pipe."""
    sys.stdout.flush()
    return str(getattr(sys.stdout, "error", ""))
