"""The runs that are reported: their folders, and what is read of each."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dqnspeed.report.summaries import ENDED_WELL, EVALUATED, FAILED, MEAN, RUNNING, config_of, load
from dqnspeed.tracking.metrics import WINDOW_S
from dqnspeed.tracking.run_folder import (
    CONFIG,
    EVALUATING,
    HYDRA_OVERRIDES,
    METRICS,
    SUMMARY,
    VIDEOS,
    Row,
    holding,
    holds_run,
    read_episodes,
    read_metrics,
    read_overrides,
)


@dataclass(frozen=True)
class Run:
    """A run, and sentences on what of it could not be read."""

    folder: Path
    summary: Row
    reports: list[Row]
    episodes: list[Row]
    config: Row
    overrides: list[str]
    damages: list[str]

    @property
    def label(self) -> str:
        return str(self.summary["label"])

    @property
    def seed(self) -> int:
        return int(self.summary["seed"])

    @property
    def solved(self) -> bool:
        return bool(self.summary["solved"])

    @property
    def running(self) -> bool:
        """Whether it has not ended, as far as its folder says."""
        return bool(self.summary["stopped_by"] == RUNNING)

    @property
    def ended_well(self) -> bool:
        """Whether it was ended by its bound or a limit, not by an error or a signal."""
        return self.summary["stopped_by"] in ENDED_WELL

    @property
    def pruned(self) -> bool:
        """Whether a search ended it as an unpromising one."""
        return bool(self.summary["stopped_by"] == "pruned")

    @property
    def gave_up(self) -> bool:
        """Whether it would not have come further with more time."""
        return not self.solved and (self.pruned or self.summary["stopped_by"] == FAILED)

    @property
    def shared(self) -> bool:
        """Whether other work on the machine slowed it down."""
        return self.summary.get("benchmark") is False

    @property
    def marks(self) -> list[str]:
        """What a reader must know of it before its numbers."""
        reason = self.summary["stopped_by"]
        marks = ["pruned"] if self.pruned else []
        if not self.ended_well:
            marks = [f"failed: {self.error}" if reason == FAILED else f"not finished: {reason}"]
        marks += ["began again"] if self.summary.get("begun_again") else []
        marks += [f"resumed: at step {', '.join(f'{step:,}' for step in self.resumed_at)}"] if self.resumed_at else []
        return [*marks, *(["shared machine"] if self.shared else [])]

    @property
    def resumed_at(self) -> list[int]:
        """The agent steps at which it was gone on with; its speeds are those since the last of them."""
        steps = self.summary.get("resumed_at")
        return [step for step in steps if isinstance(step, int)] if isinstance(steps, list) else []

    @property
    def error(self) -> str:
        return " ".join(str(self.summary.get("error") or FAILED).split())

    @property
    def env(self) -> str:
        return str(self.value("env.id") or self.summary.get("env") or "")

    @property
    def bound(self) -> float | None:
        """The mean return at which it is solved."""
        bound = self.summary.get("reward_bound", self.value("stop.reward_bound"))
        return bound if isinstance(bound, (int, float)) else None

    @property
    def is_evaluated(self) -> bool:
        """Whether evaluations say if it is solved, and not its training games."""
        return bool(self.value("stop.on") == "eval")

    @property
    def mean(self) -> float | None:
        """The last mean return, of what says if it is solved."""
        found: float | None = self.summary.get("eval_return_mean" if self.is_evaluated else "return_mean_100")
        return found

    @property
    def games(self) -> int | None:
        """The number of games that this mean is of, if they are fewer than are to: so few count by now."""
        games, window = self.summary.get("return_mean_games"), self.value("stop.window")
        fewer = isinstance(games, int) and isinstance(window, int) and 0 < games < window
        return games if fewer and not self.is_evaluated else None

    def means(self, against: str) -> list[tuple[float, float]]:
        """The curve of that mean."""
        return self.curve(EVALUATED if self.is_evaluated else MEAN, against)

    @cached_property
    def seconds(self) -> float:
        """Of training."""
        wall = self.summary.get("wall_time_s")
        last = self.reports[-1]["time"] if self.reports else 0.0
        return float(wall) - self.eval_seconds if wall else float(last)

    @cached_property
    def eval_seconds(self) -> float:
        """Seconds in evaluations, during which the training clock stands still."""
        last = self.reports[-1].get(EVALUATING) if self.reports else None
        return float(self.summary.get("eval_time_s") or last or 0.0)

    @property
    def time_to_solve(self) -> tuple[float, bool]:
        """Seconds until it was solved, or until it ended without being so; and which of the two."""
        solved_after = self.summary["time_to_solve_s"]
        return (float(solved_after), True) if self.solved and solved_after is not None else (self.seconds, False)

    def curve(self, metric: str, against: str, learning: bool = False) -> list[tuple[float, float]]:
        """``metric`` against ``step`` or ``time``, by the reports that have it.

        Args:
            learning: only those whose speeds are of no time before the first update, if there are any; none of a run
                that has not come to an update.
        """
        begun = next((report["time"] + WINDOW_S for report in self.reports if report.get("train/updates")), 0.0)
        if learning and not any(report.get("train/updates") for report in self.reports):
            return []
        later = [report for report in self.reports if learning and report["time"] >= begun] or self.reports
        return [(float(report[against]), float(report[metric])) for report in later if metric in report]

    def value(self, key: str) -> Any:
        """The option ``key`` (the name of a group's option), or what the summary has under it; ``None`` if neither."""
        for node in (self.config, self.summary):
            found: Any = node
            for part in key.split("."):
                found = found.get(part) if isinstance(found, dict) else None
            if found is not None:
                return found.get("name", found.get("id", found)) if isinstance(found, dict) else found
        return None

    @cached_property
    def command(self) -> str:
        return shlex.join(["python", "-m", "dqnspeed.train", *self.overrides])

    @cached_property
    def span(self) -> tuple[float, float] | None:
        """When it was started and when it last wrote, in seconds since 1970, by the times of its files."""
        files = [self.folder / name for name in (HYDRA_OVERRIDES, CONFIG, METRICS, SUMMARY)]
        written = list[float]()
        for file in files:
            with contextlib.suppress(OSError):
                written.append(file.stat().st_mtime)
        return (min(min(written), max(written) - self.seconds - self.eval_seconds), max(written)) if written else None

    @cached_property
    def best_video(self) -> Path | None:
        """The film with the highest return: of a game that ``play`` recorded, else of a game of the training."""
        films = [film for film in (self.folder / VIDEOS).glob("*_return_*.mp4") if _is_film(film, self.folder)]
        return max(films, key=lambda film: (film.name.startswith("play_"), return_of(film)), default=None)


def _is_film(path: Path, folder: Path) -> bool:
    """Whether this is an MP4 file that lies below ``folder`` itself, not by a link."""
    if path.is_symlink() or not path.is_file() or folder.resolve() not in path.resolve().parents:
        return False
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(8)[4:] == b"ftyp"
    return False


def return_of(film: Path) -> float:
    """The return of a recorded game, which its name ends with."""
    try:
        return float(film.stem.rpartition("_")[2])
    except ValueError:
        return float("-inf")


def runs_below(folders: Iterable[Path]) -> list[Path]:
    """Folders of runs at or below ``folders``."""
    return sorted(holding(folders, METRICS, SUMMARY))


def read_run(folder: Path) -> Run:
    """All that is reported of the run in ``folder``.

    Raises:
        DamagedError: ``summary.json`` is damaged, or ``run.json`` of a run without one.
    """
    summary = load(folder)
    if summary.get("updates_per_second") == 0:  # it ended in its warm-up, whose speed is none of the training
        summary = {**summary, "steps_per_second": None, "samples_per_step": None}
    reports, lost = read_metrics(folder)
    episodes, also_lost = read_episodes(folder)
    begun = summary["stopped_by"] != FAILED or holds_run(folder)  # else it failed before it reported
    damages = [damage for damage in (lost, also_lost) if damage and begun]
    return Run(folder, summary, reports, episodes, config_of(folder), read_overrides(folder), damages)
