"""The summary of a run, or of an unfinished run its last report."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from dqnspeed.tracking.metrics import WINDOW_S
from dqnspeed.tracking.run_folder import (
    BEGUN,
    HYDRA_CONFIG,
    SUMMARY,
    DamagedError,
    Row,
    read_config,
    read_metrics,
    read_summary,
    read_yaml,
)  # fmt: skip

MEAN = "episode/return_mean_100"
EVALUATED = "eval/return_mean"
NUMBERS = "steps_per_second", "updates_per_second", "samples_per_step", "return_mean_100", "time_to_solve_s"
# What must be known of a run; of one that failed before it trained the numbers are null.
NEEDED: dict[str, Any] = {
    "label": str, "kind": list, "seed": int, "solved": bool, "stopped_by": (str, type(None)),
    **dict.fromkeys(NUMBERS, (int, float, type(None))),
}  # fmt: skip
ENDED_WELL = ("reward_bound", "max_steps", "max_minutes", "pruned")
RUNNING = "running still, or killed"
FAILED = "error"


def load(folder: Path) -> Row:
    """A run's summary; of a run without one, what is known from its start, and what its last report says.

    Raises:
        DamagedError: the file that says so is damaged.
    """
    name = SUMMARY if (folder / SUMMARY).exists() else BEGUN
    summary = read_summary(folder, name)
    if name == BEGUN:
        summary |= _so_far(folder)
    elif summary.get("stopped_by") == FAILED and not {"label", "seed"} <= summary.keys():
        raise DamagedError(f"{folder}: failed before it began ({str(summary.get('error')).rstrip('.')}).")
    for key, kind in NEEDED.items():
        if key not in summary or not isinstance(summary[key], kind):
            raise DamagedError(f"{folder / name}: is damaged ({key} is {summary.get(key, 'missing')}).")
    return summary


def _so_far(folder: Path) -> Row:
    reports, _ = read_metrics(folder)
    last = reports[-1] if reports else {}
    learning = next((report["time"] + WINDOW_S for report in reports if report.get("train/updates")), math.inf)
    speeds = last if last and last["time"] >= learning else {}  # without the warm-up
    return {
        "solved": False,
        "stopped_by": RUNNING,
        "steps_per_second": speeds.get("perf/steps_per_second"),
        "updates_per_second": speeds.get("perf/updates_per_second"),
        "samples_per_step": speeds.get("perf/samples_per_step"),
        "return_mean_100": last.get(MEAN),
        "return_mean_games": int(last.get("episode/counted") or 0),
        "eval_return_mean": next((report[EVALUATED] for report in reversed(reports) if EVALUATED in report), None),
        "time_to_solve_s": None,
    }


def config_of(folder: Path) -> Row:
    """The configuration as it was written; empty if no copy can be read."""
    config: Any = read_config(folder)
    if not config:
        with contextlib.suppress(Exception):  # the libraries raise many errors at broken YAML
            config = OmegaConf.to_container(OmegaConf.create(read_yaml(folder / HYDRA_CONFIG)), resolve=True)
    return config if isinstance(config, dict) else {}
