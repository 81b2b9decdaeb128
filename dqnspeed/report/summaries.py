"""What a run says of itself: its summary, whichever version wrote it, or without one what it has reported so far."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
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
    SUMMARY,
    DamagedError,
    Row,
    read_metrics,
    read_overrides,
    read_summary,
)  # fmt: skip

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


def config_of(folder: Path) -> Row:
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
