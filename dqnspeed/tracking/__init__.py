"""Seeing a run: its files, the terminal, TensorBoard and W&B."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dqnspeed.config import RunConfig
from dqnspeed.options import ConfigError
from dqnspeed.tracking.base import Tracker, Trackers
from dqnspeed.tracking.files import EpisodesCsv, JsonLines
from dqnspeed.tracking.services import TensorBoard, WandB
from dqnspeed.tracking.terminal import make_progress

log = logging.getLogger(__name__)


def make_trackers(run: RunConfig, folder: Path, config: Mapping[str, Any], group: str | None) -> Trackers:
    """The trackers of a run. TensorBoard or W&B that cannot start are named in a warning and left out.

    Raises:
        ConfigError: the folder holds another run already.
    """
    try:
        trackers: list[Tracker] = [JsonLines(folder / "metrics.jsonl"), EpisodesCsv(folder / "episodes.csv")]
    except FileExistsError as error:
        raise ConfigError(f"{folder} holds another run already; name a new folder.") from error
    services: list[tuple[str, Callable[[], Tracker]]] = []
    if run.tracking.tensorboard:
        services.append(("TensorBoard", lambda: TensorBoard(folder, config)))
    if run.tracking.wandb != "disabled":
        name = f"{run.experiment.name}-seed{run.seed}"
        services.append(("W&B", lambda: WandB(run.tracking, folder, config, name, group)))
    for label, make in services:
        try:
            trackers.append(make())
        except Exception as error:  # training goes on without it
            log.warning("%s could not start and is off for this run: %s", label, error)
    return Trackers([*trackers, make_progress(run)])


__all__ = ["Tracker", "Trackers", "make_trackers"]
