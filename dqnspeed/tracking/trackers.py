"""Trackers: callbacks that ``tracking.trackers`` names, such as TensorBoard and W&B.

The command line imports every module of this package, so a new tracker is one new module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from dqnspeed.config.options import ConfigError, nearest
from dqnspeed.config.schema import TrackingConfig
from dqnspeed.system.messages import kind_and_line
from dqnspeed.tracking.callbacks import Callback

EPISODE_METRICS = ("episode/return", "episode/length")  # sent with each episode, and not with reports
RECORDING = ("tracking", "checkpoint", "live")  # options that change what is recorded, and not what is learnt
TRACKERS: dict[str, type[Callback]] = {}  # by name

Tracker = TypeVar("Tracker", bound=type[Callback])


def register_tracker(name: str) -> Callable[[Tracker], Tracker]:
    """Class decorator: the callback becomes ``tracking.trackers=[NAME]``.

    Args:
        name: name of the tracker. ``tracking.kwargs.NAME`` holds the keyword arguments of the class.

    Raises:
        ConfigError: the class is no callback.
    """

    def add(tracker: Tracker) -> Tracker:
        if not issubclass(tracker, Callback):
            raise ConfigError(f"tracking.trackers={name}: {tracker.__qualname__} must be a subclass of Callback.")
        TRACKERS[name] = tracker
        return tracker

    return add


def make_trackers(config: TrackingConfig) -> list[Callback]:
    """Make the trackers of ``config``.

    Raises:
        ConfigError: a tracker is unknown, named twice, or does not take its keyword arguments.
    """
    made = list[Callback]()
    for name in config.trackers:
        if name not in TRACKERS:
            known = sorted(TRACKERS)
            raise ConfigError(
                f"tracking.trackers={name}: there is no such tracker{nearest(name, known)}; choose among "
                f"{', '.join(known)}."
            )
        if config.trackers.count(name) > 1:
            raise ConfigError(f"tracking.trackers={name}: is named twice. Name each tracker once.")
        if name == "wandb" and config.wandb == "disabled":
            continue
        try:
            made.append(TRACKERS[name](**config.kwargs.get(name, {})))
        except TypeError as error:
            raise ConfigError(f"tracking.kwargs.{name}: {kind_and_line(error)}.") from error
    if unused := sorted(set(config.kwargs) - set(config.trackers)):
        raise ConfigError(f"tracking.kwargs.{unused[0]}: belongs to a tracker that tracking.trackers does not name.")
    return made


def public_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options for other people: without ``tracking.kwargs``, which may hold passwords."""
    return {**options, "tracking": {**options.get("tracking", {}), "kwargs": {}}}


def public_overrides(overrides: Sequence[str]) -> list[str]:
    """Overrides for other people: without ``tracking.kwargs``, which may hold passwords, and without ``live``."""
    return [one for one in overrides if not one.lstrip("+").startswith(("tracking.kwargs", "live="))]


def hyperparameters(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that change what is learnt, for services that compare runs."""
    return {group: values for group, values in options.items() if group not in RECORDING}
