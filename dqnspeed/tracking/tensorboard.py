"""TensorBoard, under the same metric names."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dqnspeed.envs import Episode
from dqnspeed.system.signals import STOPPING
from dqnspeed.tracking.base import OF_A_GAME, Tracker, without_recording
from dqnspeed.tracking.run_folder import TENSORBOARD

EVENTS = "events.out.tfevents.*"
FAILED = (None, "error", *STOPPING)
FINAL = ("time_to_solve_s", "return_mean_100", "steps_per_second", "updates_per_second", "agent_steps", "wall_time_s")


class TensorBoard(Tracker):
    """Event files against agent step; TensorBoard itself shows them against wall clock too.

    It names a run by its folder, so the events are in one with the run's name. The tab "HParams" has the run's
    configuration beside :data:`FINAL` of its summary.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any], name: str, resumed_at: int | None = None):
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        earlier = [*folder.glob(f"{TENSORBOARD}/*/{EVENTS}")]
        own = folder / TENSORBOARD / re.sub(r"[^\w.=+-]+", "_", name)
        purge = None if resumed_at is None else resumed_at + 1  # later steps are trained again
        self._writer = SummaryWriter(str(earlier[0].parent if earlier else own), purge_step=purge)
        self._writer.add_text("run", name)
        self._writer.add_text("config", _markdown(config))
        options = dict(_leaves(without_recording(config)))
        *begin, self._end = hparams(options, {f"final/{name}": 0 for name in FINAL})
        for summary in begin:
            self._writer._get_file_writer().add_summary(summary)

    def episode(self, number: int, episode: Episode, step: int, seconds: float, video: str = "") -> None:
        self._write({"episode/return": episode.episode_return, "episode/length": episode.length}, step)

    def report(self, metrics: Mapping[str, float], step: int, seconds: float) -> None:
        self._write({name: value for name, value in metrics.items() if name not in OF_A_GAME}, step)

    def close(self, summary: Mapping[str, Any]) -> None:
        final = {f"final/{name}": float(summary[name]) for name in FINAL if summary[name] is not None}
        self._write(final, summary["agent_steps"])
        if summary["stopped_by"] not in FAILED:
            self._writer._get_file_writer().add_summary(self._end)  # it says that the run ended well
        self._writer.close()

    def _write(self, metrics: Mapping[str, float], step: int) -> None:
        for name, value in metrics.items():
            if math.isfinite(value):
                self._writer.add_scalar(name, value, step)


def _leaves(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The options by their names, such as ``algo.gamma``; lists as text."""
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value) if isinstance(value, (list, tuple)) else value


def _markdown(config: Mapping[str, Any]) -> str:
    return "\n".join(f"    {line}" for line in json.dumps(config, indent=2, default=str).splitlines())
