"""Consoles divided among CPU threads."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait


def split_evenly(count: int, parts: int, first: int = 0) -> list[slice]:
    """Slices of nearly equal length that cover ``count`` indices from ``first`` on."""
    bounds = [first + count * k // parts for k in range(parts + 1)]
    return [slice(*pair) for pair in itertools.pairwise(bounds)]


class ConsoleThreads:
    """Threads that each advance a part of the consoles; Warp runs a CPU kernel in the calling thread.

    Attributes:
        parts: consoles of each thread.
    """

    def __init__(self, consoles: int, threads: int):
        threads = min(threads, consoles)
        self.parts = split_evenly(consoles, threads)
        self._pool = ThreadPoolExecutor(threads, "atari-warp") if threads > 1 else None

    def run(self, play: Callable[[int], None]) -> None:
        """Call ``play`` with the index of each part, and wait for all calls."""
        if self._pool is None:
            for part in range(len(self.parts)):
                play(part)
            return
        played: list[Future[None]] = []
        try:
            for part in range(len(self.parts)):
                played.append(self._pool.submit(play, part))
            for each in played:
                each.result()
        finally:
            wait(played)  # also after Ctrl-C: two threads must not advance the same part

    def close(self) -> None:
        """End the threads. Later calls of :meth:`run` use the calling thread."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
