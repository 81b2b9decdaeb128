"""A run as reports show it: its summary, metrics and episodes, read from its folder."""

from __future__ import annotations

import contextlib
import csv
import math
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dqnspeed.tracking import run_folder
from dqnspeed.tracking.metrics import EVALUATION_MEAN, TRAINING_MEAN, WINDOW_S
from dqnspeed.tracking.run_folder import DamagedError, Row

NUMBERS = "steps_per_second", "updates_per_second", "samples_per_step", "return_mean_100", "time_to_solve_s"
# The types of the fields that a summary must have; the numbers are null if the run failed before it trained.
REQUIRED_FIELDS: dict[str, Any] = {
    "label": str,
    "kind": list,
    "seed": int,
    "solved": bool,
    "stopped_by": (str, type(None)),
    **dict.fromkeys(NUMBERS, (int, float, type(None))),
}
# Values of ``stopped_by``.
ENDED_WELL = "reward_bound", "max_steps", "max_minutes", "pruned"
RUNNING = "still running or killed"
FAILED = "error"


@dataclass(frozen=True)
class Run:
    """A run.

    Attributes:
        summary: of a run without ``summary.json``, its last report.
        reports: the lines of ``metrics.jsonl``.
        damages: sentences on what could not be read.
    """

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
    def is_unfinished(self) -> bool:
        """Whether the run is training or was killed."""
        return bool(self.summary["stopped_by"] == RUNNING)

    @property
    def ended_well(self) -> bool:
        """Whether its bound or a limit ended the run, and not an error or a signal."""
        return self.summary["stopped_by"] in ENDED_WELL

    @property
    def is_pruned(self) -> bool:
        """Whether a search ended the run as unpromising."""
        return bool(self.summary["stopped_by"] == "pruned")

    @property
    def never_solves(self) -> bool:
        """Whether more time would not have solved the game: the run failed or was pruned."""
        return not self.solved and (self.is_pruned or self.summary["stopped_by"] == FAILED)

    @property
    def remarks(self) -> list[str]:
        """Remarks on how the run ended, and on events that changed its speed or its times."""
        reason, steps = self.summary["stopped_by"], self.summary.get("resumed_at")
        error = " ".join(str(self.summary.get("error") or FAILED).split())
        resumed = ", ".join(f"{step:,}" for step in steps if isinstance(step, int)) if isinstance(steps, list) else ""
        applies = {
            "pruned": self.is_pruned,
            f"failed: {error}": reason == FAILED,
            f"not finished: {reason}": reason != FAILED and not self.ended_well,
            "began again": self.summary.get("begun_again"),
            f"resumed: at step {resumed}": resumed,
            "shared machine": self.summary.get("benchmark") is False,
        }
        return [remark for remark, true in applies.items() if true]

    @property
    def env(self) -> str:
        """ID of the environment; empty if the run failed before it was known."""
        return str(self.value("env.id") or self.summary.get("env") or "")

    @property
    def bound(self) -> float | None:
        """Mean return at which the game is solved."""
        bound = self.summary.get("reward_bound", self.value("stop.reward_bound"))
        return bound if isinstance(bound, (int, float)) else None

    @property
    def protocol(self) -> str | None:
        """Protocol of the game: ``standard``, ``standard (sticky 0.25)`` or ``custom`` with its departures."""
        return str(self.summary.get("protocol") or "") or None

    @property
    def task(self) -> tuple[str, float | None]:
        """The environment and the bound; only runs with equal tasks are compared."""
        return self.env, self.bound

    @property
    def is_evaluated(self) -> bool:
        """Whether evaluations, and not training games, decide if the game is solved."""
        return bool(self.value("stop.on") == "eval")

    @property
    def mean_return(self) -> float | None:
        """Last mean return, of the games that decide if the game is solved."""
        found: float | None = self.summary.get("eval_return_mean" if self.is_evaluated else "return_mean_100")
        return found

    @property
    def num_games(self) -> int | None:
        """Number of games in :attr:`mean_return` if they are fewer than ``stop.window``, else ``None``."""
        games, window = self.summary.get("return_mean_games"), self.value("stop.window")
        is_partial = isinstance(games, int) and isinstance(window, int) and 0 < games < window
        return games if is_partial and not self.is_evaluated else None

    @property
    def steps(self) -> int:
        """Agent steps of training."""
        last = self.reports[-1]["step"] if self.reports else 0
        return int(self.summary.get("agent_steps") or last)

    @property
    def frames(self) -> int | None:
        """Frames of training; ``None`` if the number of frames a step is not known."""
        frames, skip = self.summary.get("frames"), self.value("wrappers.frame_skip")
        return int(frames) if frames is not None else self.steps * skip if isinstance(skip, int) else None

    @cached_property
    def seconds(self) -> float:
        """Seconds of training, without evaluations."""
        wall = self.summary.get("wall_time_s")
        last = self.reports[-1]["time"] if self.reports else 0.0
        return float(wall) - self.eval_seconds if wall else float(last)

    @cached_property
    def eval_seconds(self) -> float:
        """Seconds of evaluations, which no time of training includes."""
        last = self.reports[-1].get(run_folder.EVALUATING) if self.reports else None
        return float(self.summary.get("eval_time_s") or last or 0.0)

    @property
    def time_to_solve(self) -> tuple[float, bool]:
        """Seconds of training until the game was solved and ``True``, or until the end of the run and ``False``."""
        solved_after = self.summary["time_to_solve_s"]
        return (float(solved_after), True) if self.solved and solved_after is not None else (self.seconds, False)

    def mean_returns(self, x: str) -> list[tuple[float, float]]:
        """Curve of the mean return against ``x``, ``step`` or ``time``."""
        return self.curve(EVALUATION_MEAN if self.is_evaluated else TRAINING_MEAN, x)

    def curve(self, metric: str, x: str, skip_warm_up: bool = False) -> list[tuple[float, float]]:
        """Curve of ``metric`` against ``x``, ``step`` or ``time``.

        Args:
            skip_warm_up: leave out reports whose speeds include time before the first update; all reports of a run
                without updates, and none if no other report is left.
        """
        updating = [report["time"] for report in self.reports if report.get("train/updates")]
        if skip_warm_up and not updating:
            return []
        reports = self.reports
        if skip_warm_up:
            reports = [report for report in reports if report["time"] >= updating[0] + WINDOW_S] or reports
        return [(float(report[x]), float(report[metric])) for report in reports if metric in report]

    def value(self, key: str) -> Any:
        """The option ``key``, or the value of the summary with this name; ``None`` if there is neither.

        The value of a group is the name of its option.
        """
        for node in (self.config, self.summary):
            found: Any = node
            for part in key.split("."):
                found = found.get(part) if isinstance(found, dict) else None
            if found is not None:
                return found.get("name", found.get("id", found)) if isinstance(found, dict) else found
        return None

    @property
    def command(self) -> str:
        return shlex.join(["python", "-m", "dqnspeed.train", *self.overrides])

    @cached_property
    def span(self) -> tuple[float, float]:
        """Times of the start and of the last write, in seconds since 1970, by the run's files."""
        files = [
            self.folder / name for name in (run_folder.LOCK, run_folder.CONFIG, run_folder.METRICS, run_folder.SUMMARY)
        ]
        written = [file.stat().st_mtime for file in files if file.exists()] or [0.0]
        return min(*written, max(written) - self.seconds - self.eval_seconds), max(written)

    @cached_property
    def best_video(self) -> Path | None:
        """The video with the highest return; videos of ``play`` come before videos of the training."""
        videos = [
            path for path in (self.folder / run_folder.VIDEOS).glob("*_return_*.mp4") if _is_own_mp4(path, self.folder)
        ]
        return max(videos, key=lambda path: (path.name.startswith("play_"), return_of(path)), default=None)


def _is_own_mp4(path: Path, folder: Path) -> bool:
    """Whether ``path`` is an MP4 file in ``folder``, and no link to a file elsewhere."""
    if path.is_symlink() or not path.is_file() or folder.resolve() not in path.resolve().parents:
        return False
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(8)[4:] == b"ftyp"
    return False


def return_of(video: Path) -> float:
    """The return of a recorded game, with which its file name ends; minus infinity without one."""
    try:
        return float(video.stem.rpartition("_")[2])
    except ValueError:
        return -math.inf


def runs_below(folders: Iterable[Path]) -> list[Path]:
    """Folders of runs at or below ``folders``."""
    return sorted(run_folder.holding(folders, run_folder.METRICS, run_folder.SUMMARY))


def read_run(folder: Path) -> Run:
    """Read the run in ``folder``.

    Raises:
        DamagedError: ``summary.json`` is damaged, or ``run.json`` of a run without a summary.
    """
    reports, damage = run_folder.read_metrics(folder)
    episodes, episode_damage = run_folder.read_episodes(folder)
    summary = _read_summary(folder, reports)
    if summary.get("updates_per_second") == 0:  # ended in the warm-up, which has another speed
        summary |= {"steps_per_second": None, "samples_per_step": None}
    has_reports = summary["stopped_by"] != FAILED or run_folder.holds_run(folder)
    damages = [sentence for sentence in (damage, episode_damage) if sentence and has_reports]
    return Run(
        folder, summary, reports, episodes, run_folder.read_config(folder), run_folder.read_overrides(folder), damages
    )


def _read_summary(folder: Path, reports: list[Row]) -> Row:
    """The summary of a run; of a run without one, ``run.json`` and its last report."""
    name = run_folder.SUMMARY if (folder / run_folder.SUMMARY).exists() else run_folder.BEGUN
    summary = run_folder.read_summary(folder, name)
    summary |= {
        key: {} for key in ("machine", "versions") if not isinstance(summary.get(key), dict)
    }  # damaged or unknown
    if name == run_folder.BEGUN:
        last = reports[-1] if reports else {}
        updating = next((report["time"] for report in reports if report.get("train/updates")), math.inf)
        warm = last if last and last["time"] >= updating + WINDOW_S else {}
        evaluations = [report[EVALUATION_MEAN] for report in reports if EVALUATION_MEAN in report]
        summary |= {
            "solved": False,
            "stopped_by": RUNNING,
            **{key: warm.get(f"perf/{key}") for key in ("steps_per_second", "updates_per_second", "samples_per_step")},
            "return_mean_100": last.get(TRAINING_MEAN),
            "return_mean_games": int(last.get("episode/counted") or 0),
            "eval_return_mean": evaluations[-1] if evaluations else None,
            "time_to_solve_s": None,
        }
    elif summary.get("stopped_by") == FAILED and not {"label", "seed"} <= summary.keys():
        raise DamagedError(f"{folder}: failed before it began ({str(summary.get('error')).rstrip('.')}).")
    for key, kind in REQUIRED_FIELDS.items():
        if key not in summary or not isinstance(summary[key], kind):
            raise DamagedError(f"{folder / name}: is damaged ({key} is {summary.get(key, 'missing')}).")
    return summary


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file without its comments, which are lines that begin with #."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))
