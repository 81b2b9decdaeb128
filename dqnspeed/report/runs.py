"""The runs that are reported: their folders, and what each of them says of itself, whichever version wrote it."""

from __future__ import annotations

import contextlib
import json
import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf

from dqnspeed.cli import compose
from dqnspeed.cli import resume as resuming
from dqnspeed.config import changes
from dqnspeed.config.schema import RunConfig
from dqnspeed.tracking.metrics import WINDOW_S
from dqnspeed.tracking.run_folder import (
    CONFIG,
    HYDRA,
    HYDRA_CONFIG,
    HYDRA_OVERRIDES,
    METRICS,
    OTHER,
    SUMMARY,
    VIDEOS,
    DamagedError,
    Row,
    holding,
    holds_run,
    read_episodes,
    read_metrics,
    read_overrides,
    read_summary,
)

MEAN = "episode/return_mean_100"
EVALUATED = "eval/return_mean"
NUMBERS = "steps_per_second", "updates_per_second", "replay_ratio", "return_mean_100", "time_to_solve_s"
# What a summary.json must hold; one of a run that failed before it trained has no numbers.
NEEDED: dict[str, Any] = {
    "experiment": str, "kind": list, "seed": int, "solved": bool, "stopped_by": (str, type(None)),
    **dict.fromkeys(NUMBERS, (int, float, type(None))),
}  # fmt: skip
ENDED_WELL = ("reward_bound", "max_steps", "max_minutes", "pruned")
RUNNING = "running still, or killed"
FAILED = "error"


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
        return bool(self.summary.get("busy")) or self.summary.get("benchmark") is False

    @property
    def marks(self) -> list[str]:
        """What a reader must know of it before its numbers."""
        reason = self.summary["stopped_by"]
        marks = ["pruned"] if self.pruned else []
        if not self.ended_well:
            marks = [f"failed: {self.error}" if reason == FAILED else f"not finished: {reason}"]
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
        """The number of games that this mean is of, if they are fewer than are to count: so few have ended."""
        games, window = self.summary.get("return_mean_games"), self.value("stop.window")
        fewer = isinstance(games, int) and isinstance(window, int) and 0 < games < window
        return games if fewer and not self.is_evaluated else None

    def means(self, against: str) -> list[tuple[float, float]]:
        """The curve of that mean."""
        return self.curve(EVALUATED if self.is_evaluated else MEAN, against)

    @cached_property
    def seconds(self) -> float:
        """Of training."""
        last = self.reports[-1]["time"] if self.reports else 0.0
        return float(self.summary.get("wall_time_s") or self.summary["time_to_solve_s"] or last)

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
        return (min(min(written), max(written) - self.seconds), max(written)) if written else None

    @cached_property
    def best_video(self) -> Path | None:
        """The film with the highest return: of a game that ``play`` recorded, else of a game of the training; none of
        another run's checkpoint."""
        films = [film for film in (self.folder / VIDEOS).glob("*_return_*.mp4") if film.is_file()]
        films = [film for film in films if not film.name.startswith(f"{OTHER}_")]
        return max(films, key=lambda film: (film.name.startswith("play_"), return_of(film)), default=None)


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
        DamagedError: ``summary.json`` is damaged, or the configuration of a run without one.
    """
    summary = load(folder)
    if summary.get("updates_per_second") == 0:  # it ended in its warm-up, whose speed is none of the training
        summary = {**summary, "steps_per_second": None, "replay_ratio": None}
    reports, lost = read_metrics(folder)
    episodes, also_lost = read_episodes(folder)
    begun = summary["stopped_by"] != FAILED or holds_run(folder)  # else it failed before it reported
    damages = [damage for damage in (lost, also_lost) if damage and begun]
    return Run(folder, summary, reports, episodes, _config(folder), read_overrides(folder), damages)


def load(folder: Path) -> Row:
    """A run's summary, with ``label`` and ``kind`` computed if an older version did not write them; of a run without
    one, what its last report says.

    Raises:
        DamagedError: ``summary.json`` is damaged, or the configuration of a run without one.
    """
    if not (folder / SUMMARY).exists():
        return _so_far(folder)
    summary = read_summary(folder)
    if summary.get("stopped_by") == FAILED:
        if not {"experiment", "seed"} <= summary.keys():
            raise DamagedError(f"{folder}: failed before it began ({str(summary.get('error')).rstrip('.')}).")
        summary = {**dict.fromkeys(NUMBERS), "kind": [], "solved": False, **summary}
    for key, kind in NEEDED.items():
        if key not in summary or not isinstance(summary[key], kind):
            raise DamagedError(f"{folder / SUMMARY}: is damaged ({key} is {summary.get(key, 'missing')}).")
    if isinstance(summary.get("label"), str):
        return summary
    if not (folder / HYDRA_OVERRIDES).exists():
        return {**summary, "label": summary["experiment"]}
    try:
        return {**summary, **_named(summary, *_configuration(folder))}
    except DamagedError:
        if summary["stopped_by"] != FAILED:
            raise
    overrides = read_overrides(folder)  # which may be why it failed
    return {**summary, "label": changes.label(summary["experiment"], overrides, changes.keys_of(overrides))}


def _so_far(folder: Path) -> Row:
    begun, window = _begun_with(folder)
    reports, _ = read_metrics(folder)
    last = reports[-1] if reports else {}
    learning = next((report["time"] + WINDOW_S for report in reports if report.get("train/updates")), math.inf)
    speeds = last if last and last["time"] >= learning else {}  # without the warm-up
    return {
        **begun,
        "solved": False,
        "stopped_by": RUNNING,
        "steps_per_second": speeds.get("perf/steps_per_second"),
        "updates_per_second": speeds.get("perf/updates_per_second"),
        "replay_ratio": speeds.get("perf/replay_ratio"),
        "return_mean_100": last.get(MEAN),
        "return_mean_games": min(int(last.get("episode/count") or 0), window),
        "eval_return_mean": next((report[EVALUATED] for report in reversed(reports) if EVALUATED in report), None),
        "time_to_solve_s": None,
    }


def _begun_with(folder: Path) -> tuple[Row, int]:
    """What the configuration of a run says for its summary, and its ``stop.window``."""
    try:
        run, overrides = _configuration(folder)
    except DamagedError:
        written = _as_written(folder)
        if written is None:
            raise
        return written
    told: Row = {
        "experiment": run.experiment.name,
        "kind": run.experiment.kind,
        "env": run.env.id,
        "reward_bound": run.stop.reward_bound,
        "seed": run.seed,
    }
    return {**told, **_named(told, run, overrides)}, run.stop.window


def _as_written(folder: Path) -> tuple[Row, int] | None:
    """The same of a run with options that are not to be had here, as of a plugin; ``None`` if its configuration or its
    overrides cannot be read: without these it would stand in another's row."""
    overrides = read_overrides(folder)
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        told: Row = {
            "experiment": str(config["experiment"]["name"]),
            "kind": [str(kind) for kind in config["experiment"]["kind"]],
            "env": str(config["env"]["id"]),
            "reward_bound": config["stop"]["reward_bound"],
            "seed": int(config["seed"]),
        }
        window = int(config["stop"]["window"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not overrides:
        return None
    changed = changes.keys_of(overrides)
    label = changes.label(told["experiment"], overrides, changed)
    return {**told, "label": label, "kind": changes.kinds(told["kind"], changed)}, window


def _named(summary: Row, run: RunConfig, overrides: Sequence[str]) -> Row:
    changed = compose.changed(run, overrides)
    return {
        "label": changes.label(summary["experiment"], overrides, changed),
        "kind": changes.kinds(summary["kind"], changed),
    }


def _configuration(folder: Path) -> tuple[RunConfig, list[str]]:
    """The configuration of a run, and the overrides that it was started with."""
    path = folder / HYDRA_OVERRIDES
    try:
        overrides = [str(line) for line in OmegaConf.load(path)] if path.exists() else []
        return compose.from_hydra(resuming.load_run(folder)), overrides
    except Exception as error:  # damaged YAML, or options that no longer exist
        raise DamagedError(f"{folder / HYDRA}: is damaged ({' '.join(str(error).split())}).") from error


def _config(folder: Path) -> Row:
    """The configuration as it was written, by whichever version; empty if no copy can be read."""
    with contextlib.suppress(OSError, ValueError):
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        if isinstance(config, dict):
            return config
    with contextlib.suppress(Exception):  # the libraries raise many errors at broken YAML
        config = OmegaConf.to_container(OmegaConf.load(folder / HYDRA_CONFIG), resolve=True)
        if isinstance(config, dict):
            return cast("Row", config)
    return {}
