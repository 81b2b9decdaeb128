"""What a tracker is, of which none that fails ends a training, and what an option of ``tracking`` is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dqnspeed.config.registry import base_of, register
from dqnspeed.config.schema import TrackingConfig
from dqnspeed.envs import Episode

log = logging.getLogger(__name__)

OF_A_GAME = ("episode/return", "episode/length")  # which services are sent with each game, not with reports
OF_RECORDING = ("tracking", "checkpoint")  # groups of options that say how a run is recorded


class Tracker:
    """Receives the events of a run; each method does nothing by default."""

    def episode(self, number: int, episode: Episode, step: int, seconds: float, video: str = "") -> None:
        """A whole game ended: the ``number``-th of the run, at agent step ``step`` after ``seconds``.

        ``video`` is its file in the run's folder, or empty.
        """

    def report(self, metrics: Mapping[str, float], step: int, seconds: float) -> None:
        """Metrics of the last window, at agent step ``step`` after ``seconds`` of training, evaluations apart."""

    def best(self, file: Path, mean: float, step: int, seconds: float) -> None:
        """A checkpoint of the weights with the best ``mean`` return so far was saved in ``file``."""

    def close(self, summary: Mapping[str, Any]) -> None:
        """The run ended with this summary."""


class Trackers(Tracker):
    """Passes everything to several trackers. One that fails is named once and then left out."""

    def __init__(self, trackers: Sequence[Tracker]):
        self._trackers = list(trackers)

    def episode(self, number: int, episode: Episode, step: int, seconds: float, video: str = "") -> None:
        self._each(lambda tracker: tracker.episode(number, episode, step, seconds, video))

    def report(self, metrics: Mapping[str, float], step: int, seconds: float) -> None:
        self._each(lambda tracker: tracker.report(metrics, step, seconds))

    def best(self, file: Path, mean: float, step: int, seconds: float) -> None:
        self._each(lambda tracker: tracker.best(file, mean, step, seconds))

    def close(self, summary: Mapping[str, Any]) -> None:
        self._each(lambda tracker: tracker.close(summary))

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for tracker in list(self._trackers):
            try:
                call(tracker)
            except Exception as error:  # training continues whatever a tracker does
                self._trackers.remove(tracker)
                log.warning("%s failed and is off for the rest of this run: %s", type(tracker).__name__, error)


@base_of("tracking")
@dataclass(frozen=True)
class Tracking(TrackingConfig):
    """An option of ``tracking``: the usual trackers, as switched on, and more that a subclass adds."""

    def further(
        self, folder: Path, config: Mapping[str, Any], name: str, resumed_at: int | None
    ) -> Iterator[tuple[str, Callable[[], Tracker]]]:
        """The name and the maker of each further tracker.

        Args:
            folder: of the run; ``config``: its configuration as plain data; ``name``: its name.
            resumed_at: the agent step at which it is resumed, ``None`` for a new run.
        """
        yield from ()


@register("tracking", "standard")
@dataclass(frozen=True)
class Standard(Tracking):
    """The usual trackers only."""


def without_recording(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without the options that say how the run is recorded, for services that compare runs."""
    return {group: options for group, options in config.items() if group not in OF_RECORDING}
