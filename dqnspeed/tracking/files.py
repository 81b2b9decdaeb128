"""The files of a run's folder: ``metrics.jsonl`` and ``episodes.csv``, append-only and flushed line by line."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from dqnspeed.envs import Episode
from dqnspeed.tracking.base import Tracker

FILES = ("metrics.jsonl", "episodes.csv", "evaluations.csv")


def file_sizes(folder: Path) -> dict[str, int]:
    """Bytes in each file of ``folder`` now, and safely on disk."""
    sizes = {}
    for name in FILES:
        with contextlib.suppress(FileNotFoundError), (folder / name).open("rb") as file:
            os.fsync(file.fileno())
            sizes[name] = os.fstat(file.fileno()).st_size
    return sizes


def shorten(folder: Path, sizes: Mapping[str, int]) -> None:
    """Take back what was written after :func:`file_sizes`: it belongs to steps that are going to be trained again."""
    for name in FILES:
        with contextlib.suppress(FileNotFoundError), (folder / name).open("rb+") as file:
            if os.fstat(file.fileno()).st_size > sizes.get(name, 0):
                file.truncate(sizes.get(name, 0))


def claim(path: Path, resumed: bool) -> TextIO:
    """Open ``path`` for one process alone to append to; a new run needs a path that is not there yet.

    Raises:
        FileExistsError: a run has been here already.
        BlockingIOError: a running process writes to it.
    """
    file = path.open("a" if resumed else "x", buffering=1, newline="")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise
    return file


class JsonLines(Tracker):
    """``metrics.jsonl``: one line a report, the source of truth for every later report."""

    def __init__(self, file: TextIO):
        self._file = file

    def report(self, metrics: Mapping[str, float], step: int, seconds: float) -> None:
        numbers = {name: round(value, 6) for name, value in metrics.items() if math.isfinite(value)}
        self._file.write(json.dumps({"step": step, "time": round(seconds, 3), **numbers}) + "\n")

    def close(self, summary: Mapping[str, Any]) -> None:
        self._file.close()


class EpisodesCsv(Tracker):
    """``episodes.csv``: one line a whole game."""

    HEADER = ("episode", "return", "length", "env", "agent_step", "wall_time_s", "video")

    def __init__(self, path: Path):
        self._file, self._write = _csv(path, self.HEADER)

    def episode(self, number: int, episode: Episode, step: int, seconds: float, video: str = "") -> None:
        shown = f"{episode.episode_return:g}"
        self._write((number, shown, episode.length, episode.env, step, f"{seconds:.3f}", video))

    def close(self, summary: Mapping[str, Any]) -> None:
        self._file.close()


class EvaluationsCsv(Tracker):
    """``evaluations.csv``: one line a game of an evaluation, from the first evaluation on."""

    HEADER = ("evaluation", "return", "length", "agent_step", "wall_time_s")

    def __init__(self, path: Path):
        self._path = path
        self._file: TextIO | None = None

    def evaluation(self, number: int, episodes: Sequence[Episode], step: int, seconds: float) -> None:
        if self._file is None:
            self._file, self._write = _csv(self._path, self.HEADER)
        for episode in episodes:
            self._write((number, f"{episode.episode_return:g}", episode.length, step, f"{seconds:.3f}"))

    def close(self, summary: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.close()


def _csv(path: Path, header: Sequence[str]) -> tuple[TextIO, Callable[[Iterable[Any]], Any]]:
    file = path.open("a", buffering=1, newline="")
    writer = csv.writer(file)
    if not file.tell():
        writer.writerow(header)
    return file, writer.writerow
