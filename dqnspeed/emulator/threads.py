"""Consoles shared out between threads."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait


class Threads:
    """Consoles shared out between threads; Warp itself has one on a CPU."""

    def __init__(self, consoles: int, threads: int):
        threads = min(threads, consoles)
        bounds = [consoles * k // threads for k in range(threads + 1)]
        self.parts = [slice(*pair) for pair in itertools.pairwise(bounds)]
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
