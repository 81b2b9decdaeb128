"""The record in a sweep's folder: its command line, its jobs, and the state of each job."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from hydra._internal.utils import get_args_parser

from dqnspeed.cli import trust
from dqnspeed.config.options import ConfigError
from dqnspeed.system import signing
from dqnspeed.system.signals import EXIT_CODES
from dqnspeed.tracking.run_folder import (
    CONFIG,
    SUMMARY,
    SWEEP_JOBS,
    DamagedError,
    Row,
    holds_run,
    looking_into,
    read_summary,
    sweep_above,
)

PREFIX = "sweep."
FOLDER = "hydra.sweep.dir"
# State of a job by ``stopped_by`` in its summary.
STATES = {
    "reward_bound": "solved", "max_steps": "at its limit", "max_minutes": "at its limit", "pruned": "pruned",
    "error": "failed", **dict.fromkeys(EXIT_CODES, "ended"),
}  # fmt: skip
# Overrides that may make Hydra import a module: its own options, references, and names of packages and folders.
_MAY_RUN_CODE = re.compile(r"^[\s+~]*hydra|^-|[$@:]|\.\.")
HARMLESS = ("hydra/sweeper=optuna", "hydra/sweeper=jobs")
FINISHED = ("solved", "at its limit", "pruned")


@dataclass(frozen=True)
class Job:
    """A job: its folder, relative to the sweep's; its overrides; and the keys whose values a search has chosen."""

    folder: str
    overrides: list[str]
    searched: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """State of a job.

    Attributes:
        state: one of the values of :data:`STATES`; without a summary ``killed`` or ``not run``.
        why: reason of a failure.
        summary: contents of ``summary.json``.
        stop: ``stop`` in its configuration; empty if the configuration cannot be read.
    """

    state: str
    why: str = ""
    summary: Row = field(default_factory=dict)
    stop: Row = field(default_factory=dict)

    @property
    def mean(self) -> float | None:
        """The last mean return: of evaluations with ``stop.on=eval``, else of training games."""
        found: float | None = self.summary.get(
            "eval_return_mean" if self.stop.get("on") == "eval" else "return_mean_100"
        )
        return found

    @property
    def is_finished(self) -> bool:
        return self.state in FINISHED


def outcome(folder: Path) -> Outcome:
    """State of the job in ``folder``, read from its files."""
    without = "killed" if holds_run(folder) else "not run"
    if not (folder / SUMMARY).exists():
        return Outcome(without)
    try:
        summary = read_summary(folder)
    except DamagedError as error:
        return Outcome(without, str(error))
    stop: Row = {}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # a job may fail before it has a configuration
        stop = dict(json.loads((folder / CONFIG).read_text(encoding="utf-8"))["stop"])
    return Outcome(STATES.get(str(summary.get("stopped_by")), without), str(summary.get("error") or ""), summary, stop)


@dataclass(frozen=True)
class Line:
    """The command line of a sweep, without its folder, or of a run."""

    overrides: list[str]
    config_dir: str | None = None

    @classmethod
    def of_this_process(cls) -> Line:
        """The command line of this process."""
        args = get_args_parser().parse_args()
        overrides = [text for text in args.overrides if not text.startswith(f"{FOLDER}=")]
        return cls(overrides, args.config_dir)

    @property
    def flags(self) -> list[str]:
        """Flags that name the user's folder of option files."""
        return ["--config-dir", self.config_dir] if self.config_dir else []

    def arguments(self, folder: Path) -> list[str]:
        """Arguments for Hydra that run the sweep in ``folder``."""
        return ["-m", *self.flags, *self.overrides, f"{FOLDER}={quoted(str(folder))}"]


@dataclass(frozen=True)
class Record:
    """Contents of ``sweep.json``: command line and jobs of a sweep."""

    line: Line
    jobs: list[Job]

    @classmethod
    def read(cls, folder: Path) -> Record | None:
        """Read the record in ``folder``; ``None`` if there is none.

        Raises:
            ConfigError: the record is damaged.
        """
        path = folder / SWEEP_JOBS
        with looking_into(folder):
            if not path.exists():
                return None
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            record = cls(Line(**stored["line"]), [Job(**job) for job in stored["jobs"]])
            below = folder.resolve()
            away = [job.folder for job in record.jobs if below not in Path(below, job.folder).resolve().parents]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ConfigError(f"{path}: is damaged ({' '.join(str(error).split())}).") from error
        if away:
            raise ConfigError(f"{path}: has a job in {away[0]}, which is not below {folder}; delete that job from it.")
        return record

    def check(self, folder: Path) -> None:
        """Check whether the record in ``folder`` may run code, before Hydra reads it.

        Raises:
            ConfigError: the record may run code, and the sweep was not made here.
        """
        if signing.read(folder / SWEEP_JOBS) is not None:
            return
        of_jobs = [text for job in self.jobs for text in (job.folder, *job.overrides)]
        for text in (*self.line.flags, *self.line.overrides, *of_jobs):
            if text not in HARMLESS and _MAY_RUN_CODE.search(text):
                raise ConfigError(
                    f"{text}: may run code, and {folder / SWEEP_JOBS}, which names it, was not made here. "
                    f"Give {PREFIX}resume={folder} {trust.OPTION}=true if you trust its author."
                )


def searched(folder: Path) -> list[str]:
    """The keys whose values a search has chosen for the run in ``folder``; empty if the run is no job of a search."""
    with contextlib.suppress(ConfigError):
        sweep = sweep_above(folder)
        record = Record.read(sweep) if sweep else None
        if sweep and record:
            return next((job.searched for job in record.jobs if sweep / job.folder == folder), [])
    return []


def earlier_jobs(folder: Path, trusted: bool) -> list[Job] | None:
    """The jobs of the sweep in ``folder``, which this process continues; ``None`` if there is no sweep.

    Raises:
        ConfigError: the command line of the sweep differs from this one, or the sweep may run code and is not trusted.
    """
    record = Record.read(folder)
    if record is None:
        return None
    if record.line != Line.of_this_process():
        raise ConfigError(f"{FOLDER}: {folder} holds another sweep already; name a new folder.")
    if not trusted:
        record.check(folder)
    return record.jobs


def quoted(text: str) -> str:
    """``text`` in quotes, as the value of an override."""
    return "'" + re.sub(r"(\\*)'", r"\1\1\'", text) + "'"
