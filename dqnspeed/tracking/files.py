"""The files of a run's folder: ``metrics.jsonl`` and ``episodes.csv``, append-only and flushed line by line."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dqnspeed.envs import Episode
from dqnspeed.tracking.base import Tracker


class JsonLines(Tracker):
    """``metrics.jsonl``: one line a report, the source of truth for every later report."""

    def __init__(self, path: Path):
        self._file = path.open("x", buffering=1)

    def report(self, metrics: Mapping[str, float], step: int, seconds: float) -> None:
        numbers = {name: round(value, 6) for name, value in metrics.items() if math.isfinite(value)}
        self._file.write(json.dumps({"step": step, "time": round(seconds, 3), **numbers}) + "\n")

    def close(self, summary: Mapping[str, Any]) -> None:
        self._file.close()


class EpisodesCsv(Tracker):
    """``episodes.csv``: one line a whole game."""

    HEADER = ("episode", "return", "length", "env", "agent_step", "wall_time_s", "video")

    def __init__(self, path: Path):
        self._file = path.open("x", buffering=1, newline="")
        self._writer = csv.writer(self._file)
        self._writer.writerow(self.HEADER)

    def episode(self, number: int, episode: Episode, step: int, seconds: float) -> None:
        row = (number, f"{episode.episode_return:g}", episode.length, episode.env, step, f"{seconds:.3f}", "")
        self._writer.writerow(row)

    def close(self, summary: Mapping[str, Any]) -> None:
        self._file.close()
