"""Tracker that writes a file with one line on the state of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dqnspeed.system import atomic
from dqnspeed.tracking import Callback, TrainingState, register_tracker


@register_tracker("status")
class StatusFile(Callback):
    """Status file in the run's folder."""

    def __init__(self, file: str = "status.txt"):
        self._file = file

    def on_report(self, training: TrainingState, metrics: Mapping[str, float]) -> None:
        steps, seconds, mean = training.agent_steps, training.seconds, training.return_mean
        shown = "-" if mean is None else f"{mean:.1f}"
        self._write(training, f"{steps:,} agent steps in {seconds:.0f} s, mean return {shown}")

    def on_training_end(self, training: TrainingState, summary: Mapping[str, Any]) -> None:
        self._write(training, f"ended by {summary['stopped_by']}")

    def _write(self, training: TrainingState, text: str) -> None:
        atomic.write_text(training.folder / self._file, f"{training.name}: {text}\n")
