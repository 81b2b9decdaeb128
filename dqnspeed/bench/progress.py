"""How far a bench is: a bar with the time left, or plain lines if the output is no terminal."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

CORRECTED_FROM = 0.1  # share of the work that must be done before estimates are corrected by what it took


class Remaining:
    """Estimates the time left from what was estimated and what it took."""

    def __init__(self, seconds: float):
        self._total, self._done, self._since = seconds, 0.0, time.monotonic()

    @property
    def share(self) -> float:
        return min(1.0, self._done / self._total) if self._total else 1.0

    def advance(self, seconds: float) -> None:
        """What was estimated at so many seconds is done."""
        self._done += seconds

    def left(self) -> float:
        """Seconds."""
        pace = (time.monotonic() - self._since) / self._done if self.share >= CORRECTED_FROM and self._done else 1.0
        return max(0.0, self._total - self._done) * pace


class Bar:
    """The progress of a bench in the terminal; in a pipe a line for each piece."""

    def __init__(self, seconds: float):
        self.remaining = Remaining(seconds)
        self._interrupted = False
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(bar_width=20),
            TextColumn("{task.fields[left]}", markup=False), console=self._console, transient=True,
            disable=not self._console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=1.0, left="")

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def interrupt(self, *_: object) -> None:
        """A handler of signals. Python drops what is raised while it clears an object away, so :meth:`begin` asks."""
        self._interrupted = True
        raise KeyboardInterrupt

    def begin(self, what: str) -> None:
        """Tell the next piece; raises :class:`KeyboardInterrupt` if a signal came and was lost."""
        if self._interrupted:
            raise KeyboardInterrupt
        left = shown(self.remaining.left())
        self._bar.update(self._task, description=what[:60], completed=self.remaining.share, left=f"{left} left")
        if not self._console.is_terminal:
            print(f"{left} left: {what}", file=self._console.file, flush=True)

    def say(self, sentence: str) -> None:
        self._bar.console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def shown(seconds: float) -> str:
    """``6:40``, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
