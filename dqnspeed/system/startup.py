"""Seconds that a run takes before its first step, by part."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

PARTS = ("imports", "composition", "random_play", "compilation", "actors")


class Startup:
    """A stopwatch that is always in one of the :data:`PARTS`, so that they add up to the whole."""

    def __init__(self) -> None:
        self.begin("imports")

    def begin(self, part: str = "composition") -> None:
        """Begin with ``part`` and nothing before it, as a run does in a process that had others."""
        self.seconds, self._part, self._since = dict.fromkeys(PARTS, 0.0), part, time.perf_counter()

    def switch(self, part: str) -> str:
        """End the current part and begin ``part``; returns the former."""
        now, before = time.perf_counter(), self._part
        self.seconds[before] += now - self._since
        self._part, self._since = part, now
        return before

    @contextlib.contextmanager
    def within(self, part: str) -> Iterator[None]:
        """Be in ``part`` inside."""
        before = self.switch(part)
        try:
            yield
        finally:
            self.switch(before)


startup = Startup()  # of this process, from the first import of the package
