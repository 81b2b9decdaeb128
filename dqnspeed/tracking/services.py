"""TensorBoard and Weights & Biases, under the same metric names."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dqnspeed.config import TrackingConfig
from dqnspeed.envs import Episode
from dqnspeed.tracking.base import Tracker


class TensorBoard(Tracker):
    """Event files against agent step; TensorBoard itself shows them against wall clock too."""

    def __init__(self, folder: Path, config: Mapping[str, Any], resumed_at: int | None = None):
        from torch.utils.tensorboard import SummaryWriter

        purge = None if resumed_at is None else resumed_at + 1  # later steps are trained again
        self._writer = SummaryWriter(str(folder), purge_step=purge)
        self._writer.add_text("config", _markdown(config))

    def episode(self, number: int, episode: Episode, step: int, seconds: float, video: str = "") -> None:
        self._write({"episode/return": episode.episode_return, "episode/length": episode.length}, step)

    def report(self, metrics: Mapping[str, float], step: int, seconds: float) -> None:
        self._write({k: v for k, v in metrics.items() if k not in ("episode/return", "episode/length")}, step)

    def close(self, summary: Mapping[str, Any]) -> None:
        self._writer.close()

    def _write(self, metrics: Mapping[str, float], step: int) -> None:
        for name, value in metrics.items():
            if math.isfinite(value):
                self._writer.add_scalar(name, value, step)


class WandB(Tracker):
    """Weights & Biases, offline unless asked; every metric against agent step and ``time/wall_s``.

    Online, a resumed run goes on under its id, and shows the steps that were trained again twice. Offline runs cannot
    be gone on with, so there each stretch is a run of its own, ``<id>-<step it was resumed at>``, in one group.
    """

    def __init__(
        self,
        tracking: TrackingConfig,
        folder: Path,
        config: Mapping[str, Any],
        name: str,
        group: str | None,
        resumed_at: int | None,
    ):
        import wandb

        id_file = folder / "wandb" / "id.txt"
        if not id_file.exists():
            id_file.parent.mkdir(exist_ok=True)
            id_file.write_text(uuid.uuid4().hex[:8])
        first = id_file.read_text()
        online = tracking.wandb == "online"
        self._run = wandb.init(
            project=tracking.project,
            name=tracking.run_name or name,
            group=tracking.group or group or first,
            dir=str(folder),
            mode=tracking.wandb,  # type: ignore[arg-type]
            config=dict(config),
            reinit="finish_previous",
            id=first if online or resumed_at is None else f"{first}-{resumed_at}",
            resume="allow" if online else None,
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._run.define_metric("*", step_metric="agent_step")

    def episode(self, number: int, episode: Episode, step: int, seconds: float, video: str = "") -> None:
        metrics = {"episode/return": episode.episode_return, "episode/length": episode.length}
        self._run.log({**metrics, "agent_step": step, "time/wall_s": seconds})

    def report(self, metrics: Mapping[str, float], step: int, seconds: float) -> None:
        numbers = {name: value for name, value in metrics.items() if math.isfinite(value)}
        self._run.log({**numbers, "agent_step": step, "time/wall_s": seconds})

    def close(self, summary: Mapping[str, Any]) -> None:
        self._run.summary.update(dict(summary))
        self._run.finish()


def _markdown(config: Mapping[str, Any]) -> str:
    import json

    return "\n".join(f"    {line}" for line in json.dumps(config, indent=2, default=str).splitlines())
