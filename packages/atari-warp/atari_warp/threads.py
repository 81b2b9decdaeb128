"""Consoles shared out between threads."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait


def shares(consoles: int, parts: int, first: int = 0) -> list[slice]:
    """Of consoles from ``first`` on, as alike as can be."""
    bounds = [first + consoles * k // parts for k in range(parts + 1)]
    return [slice(*pair) for pair in itertools.pairwise(bounds)]


class Threads:
    """Consoles shared out between threads; Warp itself has one on a CPU."""

    def __init__(self, consoles: int, threads: int):
        threads = min(threads, consoles)
        self.parts = shares(consoles, threads)
        self._pool = ThreadPoolExecutor(threads, "emulator") if threads > 1 else None

    def run(self, play: Callable[[int], None]) -> None:
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
            wait(played)  # after Ctrl-C too: no part may be played by two threads

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
