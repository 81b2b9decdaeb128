"""``metrics.jsonl`` and ``episodes.csv``: append-only, a whole line at a time."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from dqnspeed.envs import Episode
from dqnspeed.system import atomic
from dqnspeed.tracking.callbacks import Callback, TrainingState
from dqnspeed.tracking.run_folder import EPISODE_COLUMNS, EPISODES, METRICS

log = logging.getLogger(__name__)

FILES = (METRICS, EPISODES)
BLOCK = 1 << 16  # bytes read at once where a file is searched from its end


def file_sizes(folder: Path) -> dict[str, int]:
    """Bytes in each file of ``folder`` now, after fsync where that works."""
    sizes = {}
    for name in FILES:
        with contextlib.suppress(FileNotFoundError):
            sizes[name] = (folder / name).stat().st_size
            with contextlib.suppress(OSError):
                atomic.flush(folder / name)
    return sizes


def shorten(folder: Path, sizes: Mapping[str, int], clocks: Mapping[str, float] | None = None) -> None:
    """Remove lines written after :func:`file_sizes`, which belong to steps that will be trained again.

    Args:
        clocks: seconds by their names in ``metrics.jsonl`` when the run resumes, if some were spent on lost steps. The
            last report that stays is repeated with these seconds, so that curves show the lost time, and another kill
            does not lose it.
    """
    for name in FILES:
        with contextlib.suppress(FileNotFoundError), atomic.open_regular(folder / name, "rb+") as file:
            end = _end_of_lines(file, min(os.fstat(file.fileno()).st_size, sizes.get(name, 0)))
            if name == METRICS:
                last = _last_report(file, end) or {"step": 0, "time": 0.0}
                if clocks and any(last.get(name, 0.0) < seconds for name, seconds in clocks.items()):
                    # Written before the rest is removed, so that a kill in between does not lose it.
                    file.seek(end)
                    last |= {name: round(seconds, 3) for name, seconds in clocks.items()}
                    end += file.write(f"{json.dumps(last)}\n".encode())
                    file.flush()
            file.truncate(end)


def time_logged(folder: Path, size: int, name: str = "time") -> float | None:
    """Metric ``name``, in seconds, of the last whole line of ``metrics.jsonl``.

    ``None`` if the file has fewer than ``size`` bytes or cannot be read.
    """
    with contextlib.suppress(OSError), (folder / METRICS).open("rb") as file:
        end = _end_of_lines(file, os.fstat(file.fileno()).st_size)
        report = _last_report(file, end)
        return float(report.get(name, 0.0)) if report and end >= size else None
    return None


def _end_of_lines(file: IO[bytes], size: int) -> int:
    """Offset after the last whole line among the first ``size`` bytes."""
    while size:
        begin = max(0, size - BLOCK)
        file.seek(begin)
        found = file.read(size - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        size = begin
    return 0


def _last_report(file: IO[bytes], end: int) -> dict[str, Any] | None:
    """The report whose line ends at ``end``."""
    begin = _end_of_lines(file, max(0, end - 1))
    file.seek(begin)
    with contextlib.suppress(ValueError):
        report = json.loads(file.read(end - begin))
        if isinstance(report, dict) and isinstance(report.get("time"), (int, float)):
            return report
    return None


class Lines:
    """A file to which whole lines are appended, unbuffered.

    If a line cannot be written, a warning is logged once, nothing of the line stays, and later ones are tried. The rest
    of a line after a power cut is removed before the next one.
    """

    def __init__(self, path: Path, header: str = ""):
        self._path, self._refused = path, False
        self._file = atomic.open_regular(path, "a+b", buffering=0)
        size = self._file.tell()
        whole = _end_of_lines(self._file, size)
        if whole < size:
            self._file.truncate(whole)
        if header and not whole:
            self.add(header)

    def add(self, line: str) -> None:
        size, data = os.fstat(self._file.fileno()).st_size, f"{line}\n".encode()
        try:
            if self._file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(size)
            if not self._refused:
                log.warning("%s could not be written, training continues without these lines: %s", self._path, error)
            self._refused = True

    def close(self) -> None:
        self._file.close()


class MetricsFile(Callback):
    """``metrics.jsonl``: one line per report."""

    optional = True

    def on_training_start(self, training: TrainingState) -> None:
        self._lines = Lines(training.folder / METRICS)

    def on_report(self, training: TrainingState, metrics: Mapping[str, float]) -> None:
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        numbers = {name: v if isinstance(v, int) else float(f"{v:.9g}") for name, v in finite.items()}
        self._lines.add(json.dumps({"step": training.agent_steps, "time": round(training.seconds, 3), **numbers}))

    def on_training_end(self, training: TrainingState, summary: Mapping[str, Any]) -> None:
        self._lines.close()


class EpisodesFile(Callback):
    """``episodes.csv``: one line per whole game."""

    optional = True

    def on_training_start(self, training: TrainingState) -> None:
        self._lines = Lines(training.folder / EPISODES, ",".join(EPISODE_COLUMNS))

    def on_episode_end(self, training: TrainingState, number: int, episode: Episode, video: str = "") -> None:
        shown, step, seconds = f"{episode.episode_return:.12g}", training.agent_steps, training.seconds
        self._lines.add(f"{number},{episode.begun},{shown},{episode.length},{episode.env},{step},{seconds:.3f},{video}")

    def on_training_end(self, training: TrainingState, summary: Mapping[str, Any]) -> None:
        self._lines.close()
