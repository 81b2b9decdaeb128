"""``metrics.jsonl``, ``episodes.csv`` and ``evaluations.csv``: append-only, a whole line at a time."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dqnspeed.envs import Episode
from dqnspeed.tracking.base import Tracker

log = logging.getLogger(__name__)

FILES = ("metrics.jsonl", "episodes.csv", "evaluations.csv")


def file_sizes(folder: Path) -> dict[str, int]:
    """Bytes in each file of ``folder`` now, and safely on disk where the disk can promise that."""
    sizes = {}
    for name in FILES:
        with contextlib.suppress(FileNotFoundError), (folder / name).open("rb") as file:
            sizes[name] = os.fstat(file.fileno()).st_size
            with contextlib.suppress(OSError):
                os.fsync(file.fileno())
    return sizes


def shorten(folder: Path, sizes: Mapping[str, int]) -> None:
    """Take back what was written after :func:`file_sizes`: it belongs to steps that are going to be trained again."""
    for name in FILES:
        with contextlib.suppress(FileNotFoundError), (folder / name).open("rb+") as file:
            if os.fstat(file.fileno()).st_size > sizes.get(name, 0):
                file.truncate(sizes.get(name, 0))


class Lines:
    """A file that whole lines are appended to, at once.

    A disk that refuses a line is a warning, once; nothing of that line stays, and later ones are tried again.
    """

    def __init__(self, path: Path, header: str = ""):
        self._path = path
        self._file = path.open("ab", buffering=0)
        self._refused = False
        if header and not self._file.tell():
            self.add(header)

    def add(self, line: str) -> None:
        size, data = os.fstat(self._file.fileno()).st_size, f"{line}\n".encode()
        try:
            written = self._file.write(data)
            if written != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(size)
            if not self._refused:
                log.warning("%s could not be written, training goes on without these lines: %s", self._path, error)
            self._refused = True

    def add_row(self, values: Iterable[object]) -> None:
        """A line of values that hold no commas."""
        self.add(",".join(map(str, values)))

    def close(self) -> None:
        self._file.close()


class JsonLines(Tracker):
    """``metrics.jsonl``: one line a report, the source of truth for every later report."""

    def __init__(self, path: Path):
        self._lines = Lines(path)

    def report(self, metrics: Mapping[str, float], step: int, seconds: float) -> None:
        numbers = {name: round(value, 6) for name, value in metrics.items() if math.isfinite(value)}
        self._lines.add(json.dumps({"step": step, "time": round(seconds, 3), **numbers}))

    def close(self, summary: Mapping[str, Any]) -> None:
        self._lines.close()


class EpisodesCsv(Tracker):
    """``episodes.csv``: one line a whole game."""

    def __init__(self, path: Path):
        self._lines = Lines(path, "episode,return,length,env,agent_step,wall_time_s,video")

    def episode(self, number: int, episode: Episode, step: int, seconds: float, video: str = "") -> None:
        shown = f"{episode.episode_return:g}"
        self._lines.add_row((number, shown, episode.length, episode.env, step, f"{seconds:.3f}", video))

    def close(self, summary: Mapping[str, Any]) -> None:
        self._lines.close()


class EvaluationsCsv(Tracker):
    """``evaluations.csv``: one line a game of an evaluation, from the first evaluation on."""

    def __init__(self, path: Path):
        self._path = path
        self._lines: Lines | None = None

    def evaluation(self, number: int, episodes: Sequence[Episode], step: int, seconds: float) -> None:
        if self._lines is None:
            self._lines = Lines(self._path, "evaluation,return,length,agent_step,wall_time_s")
        for episode in episodes:
            self._lines.add_row((number, f"{episode.episode_return:g}", episode.length, step, f"{seconds:.3f}"))

    def close(self, summary: Mapping[str, Any]) -> None:
        if self._lines is not None:
            self._lines.close()
