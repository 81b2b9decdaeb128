"""A sweep: running its jobs, and telling what became of them."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, OmegaConf

from dqnspeed.cli import trust
from dqnspeed.cli.errors import FULL_ERROR, RunError, explain, is_user_error
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.cli.sweep_record import PREFIX, Job, Line, Outcome, Record, outcome, quoted
from dqnspeed.config import changes
from dqnspeed.config.options import ConfigError, option
from dqnspeed.system import atomic, messages, signing
from dqnspeed.system.signals import SignalRecorder, ending_signals
from dqnspeed.tracking.run_folder import STUDY, SUMMARY, SWEEP_JOBS, Row
from dqnspeed.training.folder_lock import locked_folder

RESUME = f"{PREFIX}resume="


@dataclass(frozen=True)
class SweepOptions:
    resume: str | None = option("the folder of a sweep to go on with", default=None)
    dry_run: bool = option("tell the jobs and their time, and start none", default=False)


COMMAND_LINE = CommandLine(f"{PREFIX}KEY=VALUE...", "Go on with a sweep, or tell what it would be.", SweepOptions)


class Sweep:
    """The sweep that this process runs; where a launcher runs its jobs in other processes, there it is empty."""

    def __init__(self) -> None:
        self.dry_run = False
        self.heard = SignalRecorder()
        self.folder: Path | None = None
        self.jobs: list[Job] = []
        self.trust = list[str]()  # the argument by which the files of this sweep's jobs are trusted too
        self.is_queued = False  # by Slurm, which does not need this process
        self.line = Line([])
        self.remarks: list[str] = []  # lines for its end

    def begin(self, folder: Path, line: Line, jobs: Sequence[Job]) -> None:
        """The sweep of ``line`` runs in ``folder`` from here on, which records it before the first job starts."""
        self.folder, self.line = folder, line
        self.add(jobs)

    def add(self, jobs: Sequence[Job]) -> None:
        """Record more jobs; those that are known already stay as they are."""
        assert self.folder is not None
        known = {job.folder for job in self.jobs}
        self.jobs += [job for job in jobs if job.folder not in known]
        record = {"line": dataclasses.asdict(self.line), "jobs": [dataclasses.asdict(job) for job in self.jobs]}
        try:
            signing.write(self.folder / SWEEP_JOBS, record)
        except OSError as error:
            raise ConfigError(f"{self.folder / SWEEP_JOBS}: cannot be written ({error.strerror}).") from error

    def launch(self, launcher: Launcher, jobs: Sequence[Job]) -> None:
        """Run those of ``jobs`` that are not finished."""
        assert self.folder is not None
        kinds = {kind.__name__ for kind in type(launcher).__mro__}  # Hydra may have imported its plugins anew
        if BasicLauncher.__name__ not in kinds:
            missing = [job for job in jobs if not outcome(self.folder / job.folder).is_finished]
            if missing:
                self.is_queued = any(name.startswith("Slurm") for name in kinds)
                with self._waiting():
                    self._launch(launcher, missing)
            return
        for job in jobs:
            folder = self.folder / job.folder
            try:
                if folder.is_dir():
                    with locked_folder(folder, resumed=True):  # before Hydra writes into what another process runs
                        pass
                if not outcome(folder).is_finished:  # which it may have become since the sweep began
                    self._launch(launcher, [job])
            except Exception as error:  # before the job could record it, as where its folder cannot be made
                record_failure(folder, error)

    def _launch(self, launcher: Launcher, jobs: Sequence[Job]) -> None:
        assert self.folder is not None
        overrides = [[*job.overrides, f"hydra.sweep.subdir={quoted(job.folder)}"] for job in jobs]
        results = launcher.launch(overrides, initial_job_idx=self.jobs.index(jobs[0]))
        for job, result in zip(jobs, results, strict=True):
            try:
                _ = result.return_value
            except Exception as error:
                record_failure(self.folder / job.folder, error)

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """Pass a signal on to jobs in other processes, wait until they have saved, end; a second Ctrl-C ends at once.

        Raises:
            RunError: the launcher failed, as where the system ends one of its processes.
        """

        def end(number: int, frame: FrameType | None) -> None:
            if self.is_queued and number != signal.SIGINT:  # the jobs go on without this process
                sys.exit(128 + number)
            if self.heard.received is not None:
                if number == signal.SIGINT:
                    raise KeyboardInterrupt
                return  # a terminal that is closed sends more than one
            self.heard(number, frame)
            for child in psutil.Process().children():
                with contextlib.suppress(psutil.Error):
                    child.terminate()

        before = {number: signal.signal(number, end) for number in ending_signals()}
        try:
            yield
        except Exception as error:
            if self.heard.received is None:
                raise RunError(f"the launcher failed: {messages.kind_and_line(error)}.") from error
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if self.heard.received is not None:
            sys.exit(128 + self.heard.received.value)

    @property
    def is_elsewhere(self) -> bool:
        """Whether a launcher runs it, and this process one of its jobs."""
        return self.folder is None

    def remember_signals(self) -> None:
        """In a process of a launcher's: a signal between two trainings ends the sweep too."""
        for number in ending_signals():
            signal.signal(number, self.heard)

    def table(self) -> list[str]:
        """Lines for the end of a sweep: a table of all jobs, and how to go on with it if some are not finished."""
        if self.folder is None:
            return []
        found = [outcome(self.folder / job.folder) for job in self.jobs]
        shared = set.intersection(*(set(job.overrides) for job in self.jobs)) if len(self.jobs) > 1 else set[str]()
        rows = [_row(job, one, shared) for job, one in zip(self.jobs, found, strict=True)]
        lines = ["", *aligned([("job", "", "", "minutes", "mean return"), *rows]), *self.remarks]
        # A trial that failed stays failed: a search goes on to others.
        final = ("failed",) if (self.folder / STUDY).exists() else ()
        if not all(one.is_finished or one.state in final for one in found):
            if self.is_queued:
                lines.append("Slurm may still have some of them (squeue); go on once it has none.")
            lines.append(f"To go on: {messages.command('train', f'{RESUME}{self.folder}')}")
        return lines

    def problems(self) -> list[str]:
        """Sentences for the end of a sweep: the jobs that failed, and the number that were left out."""
        if self.folder is None:
            return []
        found = {job.folder: outcome(self.folder / job.folder) for job in self.jobs}
        failed = [f"  {self.folder / name}: {one.why}" for name, one in found.items() if one.state == "failed"]
        left = sum(one.state == "not run" for one in found.values())
        lines = [f"dqnspeed: {len(failed)} of {len(found)} jobs failed:", *failed] if failed else []
        if left and not self.is_queued:
            lines.append(f"dqnspeed: the sweep was ended: {left} of its {len(found)} jobs were left out.")
        return lines

    @property
    def has_failed(self) -> bool:
        """Whether a job has not come to its end."""
        return self.folder is not None and any(not outcome(self.folder / job.folder).is_finished for job in self.jobs)


sweep = Sweep()


def take_options(arguments: Sequence[str]) -> list[str]:
    """Carry out the ``sweep.KEY=VALUE`` among the arguments of the command line; returns those for Hydra.

    Raises:
        ConfigError: there is no such option, or no sweep to go on with.
    """
    own = [text.removeprefix(PREFIX) for text in arguments if text.startswith(PREFIX)]
    others = [text for text in arguments if not text.startswith(PREFIX)]
    try:
        options, _ = COMMAND_LINE.read(own)
    except ConfigError as error:
        raise ConfigError(f"{PREFIX}{error}") from error
    sweep.dry_run = options.dry_run
    if options.resume is None:
        return others
    trusted, others = trust.take(others)
    if others:
        raise ConfigError(f"{others[0]}: does not go with {RESUME}, which takes what the folder records.")
    folder = Path(options.resume)
    record = Record.read(folder)
    if record is None:
        raise ConfigError(f"{folder}: holds no sweep (no {SWEEP_JOBS}).")
    if trusted:
        sweep.trust = [f"{trust.OPTION}=true"]
    else:
        record.check(folder)
    return record.line.arguments(folder)


def sweep_jobs(cfg: DictConfig, loader: ConfigLoader) -> Iterator[list[str]]:
    """The overrides of each job of a sweep over lists of values."""
    choices = dict[str, list[str]]()  # the last one given counts
    for override in OverridesParser.create(config_loader=loader).parse_overrides(swept(cfg)):
        key = override.get_key_element()
        if override.is_sweep_override() and not override.is_discrete_sweep():
            raise ConfigError(
                f"{override.input_line}: no list of values to sweep over; give {key}=VALUE,VALUE, "
                f"or hydra/sweeper=optuna to search."
            )
        if override.is_sweep_override():
            choices[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
        else:
            choices[key] = [str(override.input_line)]
    return (list(job) for job in itertools.product(*choices.values()))


def swept(cfg: DictConfig) -> list[str]:
    """The overrides of a sweep: those of its option of ``sweep``, and then those of the command line."""
    params = cfg.hydra.sweeper.get("params") or {}
    return [f"{key}={value}" for key, value in params.items()] + [str(text) for text in cfg.hydra.overrides.task]


def record_failure(folder: Path, error: Exception, cfg: DictConfig | None = None) -> None:
    """Print why the job in ``folder`` failed, and write it into its summary as one sentence; not where another process
    runs it, or has ended it well."""
    users = is_user_error(error)
    if FULL_ERROR or not (users or isinstance(error, RunError)):
        traceback.print_exception(error)
    sentence = explain(error) if users else str(error) or type(error).__name__
    print(f"dqnspeed: {sentence}", file=sys.stderr)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked_folder(folder, resumed=True):
            found = outcome(folder)
            if isinstance(error, RunError) or not found.is_finished:
                why = {"stopped_by": "error", "error": sentence.splitlines()[0]}
                atomic.write_json(folder / SUMMARY, {**_unstarted(cfg), **found.summary, **why})
    except OSError as refused:
        print(f"dqnspeed: {folder / SUMMARY}: cannot be written ({refused.strerror}).", file=sys.stderr)
    except ConfigError as refused:  # which ``error`` may be already
        if not isinstance(error, ConfigError):
            print(f"dqnspeed: {refused}", file=sys.stderr)


def _unstarted(cfg: DictConfig | None) -> Row:
    """The fields of a summary that are known of a job that failed before it started."""
    if cfg is None:
        return {}
    name, overrides = str(OmegaConf.select(cfg, "experiment.name")), HydraConfig.get().overrides.task
    label = changes.label(name, overrides, changes.keys_of(overrides))
    known: dict[str, Any] = {"experiment": name, "label": label, "kind": [], "seed": OmegaConf.select(cfg, "seed")}
    numbers = ("time_to_solve_s", "steps_per_second", "updates_per_second", "samples_per_step", "return_mean_100")
    return {**known, "solved": False, **dict.fromkeys(numbers)}


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with the cells of each column one below the other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _row(job: Job, found: Outcome, shared: set[str]) -> tuple[str, ...]:
    """The cells of a job's line; the overrides that all jobs share are left out."""
    seconds, mean = found.summary.get("wall_time_s"), found.mean
    return (
        job.folder,
        " ".join(changes.without_escapes(text) for text in job.overrides if text not in shared),
        found.state,
        "" if seconds is None else f"{seconds / 60:.1f}",
        "" if mean is None else f"{mean:.2f}",
    )
