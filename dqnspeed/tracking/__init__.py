"""Tracking of a run: its files, the terminal, TensorBoard and W&B."""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.system import machine
from dqnspeed.tracking.base import Tracker, Trackers, Tracking
from dqnspeed.tracking.files import (
    EpisodesCsv,
    JsonLines,
    file_sizes,
    shorten,
    time_logged,
)
from dqnspeed.tracking.run_folder import EPISODES, METRICS
from dqnspeed.tracking.tensorboard import TensorBoard
from dqnspeed.tracking.terminal import make_progress
from dqnspeed.tracking.time_left import Earlier, earlier_runs
from dqnspeed.tracking.wandb import WandB

log = logging.getLogger(__name__)

NAME_LENGTH = 60  # of what a run is called in TensorBoard and W&B, its seed apart


def make_trackers(
    run: RunConfig,
    folder: Path,
    config: Mapping[str, Any],
    label: str,
    group: str | None,
    resumed_at: int | None = None,
    sizes: Mapping[str, int] | None = None,
    clocks: Mapping[str, float] | None = None,
) -> Trackers:
    """The trackers of a run. A service that cannot start is named in a warning and left out.

    Args:
        label: the run's name.
        resumed_at: agent step at which a run is resumed, whose files exist; ``None`` for a new run.
        sizes: bytes of those files at that step; what was written later is removed.
        clocks: seconds by their names in ``metrics.jsonl`` when the run resumes, if some were spent on lost work.
    """
    if resumed_at is not None:
        shorten(folder, sizes or {}, clocks or {})
    trackers: list[Tracker] = [
        JsonLines(folder / METRICS),
        EpisodesCsv(folder / EPISODES),
    ]
    name = f"{textwrap.shorten(label, NAME_LENGTH, placeholder=' …')}, seed {run.seed}"
    services: list[tuple[str, Callable[[], Tracker]]] = []
    if run.tracking.tensorboard:
        services.append(("TensorBoard", lambda: TensorBoard(folder, config, name, resumed_at)))
    if run.tracking.wandb != "disabled":
        services.append(("W&B", lambda: WandB(run, folder, config, name, group, resumed_at)))
    try:
        services += typed(run.tracking, Tracking).further(folder, config, name, resumed_at)
    except Exception as error:  # of somebody else's tracker
        log.warning("tracking=%s: its own trackers are off for this run: %s", run.tracking.name, error)
    for service, make in services:
        try:
            trackers.append(make())
        except Exception as error:  # training continues without it
            log.warning("%s could not start and is off for this run: %s", service, error)
    here = machine.describe(machine.pick_device(run.device))

    def earlier() -> Earlier:
        # Where evaluations decide, the mean of training games does not tell how far a run is.
        return Earlier() if run.stop.on == "eval" else earlier_runs(config, here, but=folder)

    # Closed first: others may take long then, and be interrupted, and a terminal is to have its cursor.
    return Trackers([make_progress(run, label, earlier), *trackers])


__all__ = ["Tracker", "Trackers", "file_sizes", "make_trackers", "time_logged"]
