"""Seconds of a run before its first step, by part."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

PARTS = ("imports", "composition", "random_play", "compilation", "actors")


class Startup:
    """A stopwatch that is always in one of :data:`PARTS`, so that the parts add up to the whole."""

    def __init__(self) -> None:
        self.begin("imports")

    def begin(self, part: str = "composition") -> None:
        """Start again with ``part``, for another run in the same process."""
        self.seconds, self._part, self._since = dict.fromkeys(PARTS, 0.0), part, time.perf_counter()

    def switch(self, part: str) -> str:
        """End the current part and begin ``part``; returns the former."""
        now, before = time.perf_counter(), self._part
        self.seconds[before] += now - self._since
        self._part, self._since = part, now
        return before

    @contextlib.contextmanager
    def within(self, part: str) -> Iterator[None]:
        """Count the block as ``part``."""
        before = self.switch(part)
        try:
            yield
        finally:
            self.switch(before)


startup = Startup()  # of this process; starts with the first import of the package
