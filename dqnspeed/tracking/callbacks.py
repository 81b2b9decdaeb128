"""Training callbacks, for trackers, plugins and Python scripts."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import Episode
from dqnspeed.networks.base import Network
from dqnspeed.system.messages import kind_and_line

log = logging.getLogger(__name__)


class TrainingState(Protocol):
    """Read-only view of a run, for callbacks.

    Attributes:
        config: checked configuration; ``options``: the same configuration as plain data.
        folder: folder of the run.
        name: name of the run for tracking services, with its seed; ``label``: name without the seed.
        group: name of the sweep, ``None`` for a single run.
        resumed_at: agent step at which the run was resumed, ``None`` for a new run.
    """

    config: RunConfig
    options: Mapping[str, Any]
    folder: Path
    label: str
    name: str
    group: str | None
    resumed_at: int | None

    @property
    def network(self) -> Network:
        """Network that is trained."""

    @property
    def agent_steps(self) -> int:
        """Agent steps so far."""

    @property
    def updates(self) -> int:
        """Optimizer steps so far."""

    @property
    def seconds(self) -> float:
        """Seconds of training so far, excluding evaluations."""

    @property
    def return_mean(self) -> float | None:
        """Mean return that decides whether the run is solved; ``None`` or NaN before the first episode that counts."""

    def end(self, reason: str) -> None:
        """End the training before its next step; ``reason`` becomes ``stopped_by`` of the summary."""


class Callback:
    """Base class of callbacks; by default its methods do nothing.

    Methods run in the learner's process, between two steps of the training loop. An exception ends the run with an
    error that names the callback, after a final checkpoint if training had started. A callback that raised is not
    called again.

    Attributes:
        optional: an exception is only a warning, and the training continues without the callback.
    """

    optional: ClassVar[bool] = False

    def on_training_start(self, training: TrainingState) -> None:
        """Called once, before the buffer and the actors are made."""

    def on_update(self, training: TrainingState) -> None:
        """Called after updates; one pass of the training loop may do several."""

    def on_report(self, training: TrainingState, metrics: Mapping[str, float]) -> None:
        """Called every ``tracking.report_every_s`` seconds.

        Args:
            metrics: metrics by name, NaN where there is no value. Means are over the time since the last report;
                ``time/*`` and counts are totals.
        """

    def on_episode_end(self, training: TrainingState, number: int, episode: Episode, video: str = "") -> None:
        """Called when an episode ends; a lost life does not end it.

        Args:
            number: number of the episode in the run, from 1.
            video: path of its video within the run's folder, empty if there is none.
        """

    def on_evaluation(self, training: TrainingState, metrics: Mapping[str, float]) -> None:
        """Called after an evaluation, with its ``eval/*`` metrics."""

    def on_checkpoint(self, training: TrainingState, path: Path) -> None:
        """Called when a checkpoint was saved: ``best``, ``step_*`` or ``final``, by the stem of ``path``."""

    def on_training_end(self, training: TrainingState, summary: Mapping[str, Any]) -> None:
        """Called once, with the contents of ``summary.json``."""


class CallbackError(Exception):
    """Exception of a callback; the message names the callback."""


class Callbacks:
    """Calls several callbacks in order; a callback that raises is not called again.

    Attributes:
        error: first error of a callback that is not optional.
        seconds: seconds spent in each callback, by the name of its class.
    """

    error: CallbackError | None = None

    def __init__(self, callbacks: Sequence[Callback]):
        self._given, self._started = list(callbacks), list[Callback]()
        self.seconds = {type(callback).__name__: 0.0 for callback in callbacks}

    def check(self) -> None:
        """Raise :attr:`error`, if there is one."""
        if self.error is not None:
            raise self.error

    def on_training_start(self, training: TrainingState) -> None:
        self._started = self._given
        self.call("on_training_start", training)

    def call(self, event: str, *arguments: Any) -> None:
        """Call the method ``event`` of every callback that was started and defines it."""
        for callback in self._started:
            if getattr(type(callback), event) is not getattr(Callback, event):
                self._call(callback, event, *arguments)

    def _call(self, callback: Callback, event: str, *arguments: Any) -> None:
        name, start = type(callback).__name__, time.perf_counter()
        try:
            getattr(callback, event)(*arguments)
        except Exception as error:
            self._started = [each for each in self._started if each is not callback]
            if callback.optional:
                log.warning("%s failed and is off for the rest of this run: %s", name, error)
            elif self.error is None:
                self.error = CallbackError(f"callback {name}.{event}: raised {kind_and_line(error)}.")
                self.error.__cause__ = error
        finally:
            self.seconds[name] += time.perf_counter() - start
