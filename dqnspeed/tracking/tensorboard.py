"""TensorBoard, under the same metric names."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from dqnspeed.envs import Episode
from dqnspeed.system.signals import EXIT_CODES
from dqnspeed.tracking.callbacks import Callback, TrainingState
from dqnspeed.tracking.run_folder import TENSORBOARD, flat
from dqnspeed.tracking.trackers import EPISODE_METRICS, hyperparameters, public_options, register_tracker

EVENTS = "events.out.tfevents.*"
FAILED = (None, "error", *EXIT_CODES)
FINAL = ("time_to_solve_s", "return_mean_100", "steps_per_second", "updates_per_second", "agent_steps", "wall_time_s")


@register_tracker("tensorboard")
class TensorBoard(Callback):
    """TensorBoard event files, by agent step.

    TensorBoard names a run by the folder of its events, so the folder has the run's name. The tab "HParams" shows the
    options of the run beside :data:`FINAL` of its summary.
    """

    optional = True

    def on_training_start(self, training: TrainingState) -> None:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        folder, name, resumed_at = training.folder, training.name, training.resumed_at
        earlier = [*folder.glob(f"{TENSORBOARD}/*/{EVENTS}")]
        own = folder / TENSORBOARD / re.sub(r"[^\w.=+-]+", "_", name)
        purge = None if resumed_at is None else resumed_at + 1  # later steps are trained again
        self._writer = SummaryWriter(str(earlier[0].parent if earlier else own), purge_step=purge)
        self._writer.add_text("run", name)
        lines = json.dumps(public_options(training.options), indent=2, default=str).splitlines()
        self._writer.add_text("config", "\n".join(f"    {line}" for line in lines))  # code of Markdown
        plain = flat(hyperparameters(training.options))
        options = {key: v if isinstance(v, (int, float, str)) else json.dumps(v) for key, v in plain.items()}
        *begin, self._end = hparams(options, {f"final/{name}": 0 for name in FINAL})
        for summary in begin:
            self._writer._get_file_writer().add_summary(summary)

    def on_episode_end(self, training: TrainingState, number: int, episode: Episode, video: str = "") -> None:
        values = (episode.episode_return, episode.length)
        self._write(dict(zip(EPISODE_METRICS, values, strict=True)), training.agent_steps)

    def on_report(self, training: TrainingState, metrics: Mapping[str, float]) -> None:
        numbers = {name: value for name, value in metrics.items() if name not in EPISODE_METRICS}
        self._write(numbers, training.agent_steps)

    def on_training_end(self, training: TrainingState, summary: Mapping[str, Any]) -> None:
        final = {f"final/{name}": float(summary[name]) for name in FINAL if summary[name] is not None}
        self._write(final, summary["agent_steps"])
        if summary["stopped_by"] not in FAILED:
            self._writer._get_file_writer().add_summary(self._end)  # marks the run as successful
        self._writer.close()

    def _write(self, metrics: Mapping[str, float], step: int) -> None:
        for name, value in metrics.items():
            if math.isfinite(value):
                self._writer.add_scalar(name, value, step)
