"""The input of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.tracking import Callback


@dataclass(frozen=True)
class RunRequest:
    """Everything that a run is made of.

    Args:
        config: checked configuration; ``options``: the same configuration as plain data, which the run's files keep.
        spec: shapes of the environment.
        folder: folder of the run.
        label: name of the run without its seed; by default the name of its rung.
        group: name of the sweep that the run belongs to.
        overrides: command line of the run.
        resume: continue the run in ``folder`` from its newest checkpoint.
        restart_if_no_checkpoint: restart a run that left no checkpoint to resume from, however long it lasted.
        benchmark: whether the run has the machine for itself, so that its times can be compared.
        callbacks: called beside the trackers of ``tracking``.
    """

    config: RunConfig
    spec: EnvSpec
    folder: Path
    options: Mapping[str, Any]
    label: str = ""
    group: str | None = None
    overrides: Sequence[str] = ()
    resume: bool = False
    restart_if_no_checkpoint: bool = False
    benchmark: bool = True
    callbacks: Sequence[Callback] = ()
