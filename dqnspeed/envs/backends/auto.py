"""``backend=auto``: the fastest backend that can play a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from dqnspeed.config.options import ConfigError
from dqnspeed.config.registry import GROUPS, register
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs.backends.base import Backend, NotInstalledError


@register("backend", "auto")
@dataclass(frozen=True)
class Auto(Backend):
    """Stands for the backend that :func:`choose` takes before a run begins."""


def choose(run: RunConfig) -> Backend:
    """Backend of the highest priority that can play ``run``, with its default options.

    If none can, the backend of the lowest priority, whose checks then name the problem.
    """
    tried = by_priority()
    return next((backend for backend in tried if refusal(backend, run) is None), tried[-1])


def playable(run: RunConfig) -> list[str]:
    """Names of the backends that can play ``run``, the highest priority first."""
    return [backend.name for backend in by_priority() if refusal(backend, run) is None]


def not_installed(run: RunConfig) -> Iterator[str]:
    """A sentence for each faster backend than the one of ``run`` whose package is missing here."""
    for backend in by_priority():
        if backend.name == run.backend.name:
            return
        if isinstance(error := refusal(backend, run), NotInstalledError):
            yield f"backend=auto: takes backend={run.backend.name}, which is slower. {error}"


def by_priority() -> list[Backend]:
    """One of each backend that takes part, the highest priority first."""
    kinds = cast("dict[str, type[Backend]]", GROUPS["backend"].options)
    found = [(kind.priority, kind(name=name)) for name, kind in kinds.items() if kind.priority is not None]
    return [backend for _, backend in sorted(found, key=lambda pair: -pair[0])]


def refusal(backend: Backend, run: RunConfig) -> ConfigError | None:
    """Error with which ``backend`` refuses to play ``run``; ``None`` if it can."""
    tried = dataclasses.replace(run, backend=backend)
    try:
        backend.check(tried)
        backend.check_here(tried)
    except ConfigError as error:
        return error
    return None
