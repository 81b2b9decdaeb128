"""Output that nobody may take any more: a terminal that is closed, a pipe whose reader has left, a full disk."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO, cast


class Lasting:
    """A stream that writes to another one until the first error, and then writes nothing.

    Attributes:
        lost: why; empty if all was written, or the reader has left.
    """

    def __init__(self, stream: TextIO | None):
        # Python has None for a stream that is closed from the start.
        self._stream = open(os.devnull, "w") if stream is None else stream  # noqa: SIM115
        self.lost = "it is closed" if stream is None else ""

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
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                self.lost = str(error.strerror)
            # What waits would fail at the end, and Python with it.
            with contextlib.suppress(OSError), open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())


def outlast_readers() -> None:
    """From now on what is printed in this process and cannot be written ends nothing."""
    sys.stdout, sys.stderr = (cast("TextIO", Lasting(stream)) for stream in (sys.stdout, sys.stderr))


def lost_output() -> str:
    """Why standard output could not be written; empty if all was, or if its reader has left."""
    sys.stdout.flush()
    return str(getattr(sys.stdout, "lost", ""))
