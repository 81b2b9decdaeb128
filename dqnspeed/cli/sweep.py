"""A sweep: run its jobs, and report their results."""

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
    resume: str | None = option("folder of a sweep to resume", default=None)
    dry_run: bool = option("print the jobs and their time limits, and start none", default=False)


COMMAND_LINE = CommandLine(f"{PREFIX}KEY=VALUE...", "Resume a sweep, or print its jobs.", SweepOptions)


class Sweep:
    """The sweep that this process runs; empty in a process that a launcher has started for a job."""

    def __init__(self) -> None:
        self.dry_run = False
        self.heard = SignalRecorder()
        self.folder: Path | None = None
        self.jobs: list[Job] = []
        self.trust = list[str]()  # ``trust=true`` for the jobs, if it is given
        self.is_queued = False  # whether Slurm runs the jobs, also without this process
        self.line = Line([])
        self.remarks: list[str] = []  # printed after the table of jobs

    def begin(self, folder: Path, line: Line, jobs: Sequence[Job]) -> None:
        """Begin the sweep of ``line`` in ``folder``; the record is written before the first job starts."""
        self.folder, self.line = folder, line
        self.add(jobs)

    def add(self, jobs: Sequence[Job]) -> None:
        """Record jobs that are not recorded yet."""
        assert self.folder is not None
        known = {job.folder for job in self.jobs}
        self.jobs += [job for job in jobs if job.folder not in known]
        record = {"line": dataclasses.asdict(self.line), "jobs": [dataclasses.asdict(job) for job in self.jobs]}
        try:
            signing.write(self.folder / SWEEP_JOBS, record)
        except OSError as error:
            raise ConfigError(f"{self.folder / SWEEP_JOBS}: cannot be written ({error.strerror}).") from error

    def launch(self, launcher: Launcher, jobs: Sequence[Job]) -> None:
        """Run the unfinished jobs of ``jobs``."""
        assert self.folder is not None
        kinds = {kind.__name__ for kind in type(launcher).__mro__}  # Hydra may import a plugin twice
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
                    with locked_folder(folder, resumed=True):  # fails if another process runs the job
                        pass
                if not outcome(folder).is_finished:  # another process may have finished it
                    self._launch(launcher, [job])
            except Exception as error:  # the job did not start, for example because its folder cannot be made
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
        """Pass signals on to the processes of the jobs, and exit when they have saved; a second Ctrl-C exits at once.

        Raises:
            RunError: the launcher failed, for example because the system killed one of its processes.
        """

        def end(number: int, frame: FrameType | None) -> None:
            if self.is_queued and number != signal.SIGINT:  # the jobs continue without this process
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
        """Whether this process runs a job for a launcher in another process."""
        return self.folder is None

    def remember_signals(self) -> None:
        """Record signals between two trainings of a launcher's process, which end the sweep too."""
        for number in ending_signals():
            signal.signal(number, self.heard)

    def table(self) -> list[str]:
        """Lines for the end of a sweep: a table of all jobs, and the command that resumes the sweep if necessary."""
        if self.folder is None:
            return []
        found = [outcome(self.folder / job.folder) for job in self.jobs]
        shared = set.intersection(*(set(job.overrides) for job in self.jobs)) if len(self.jobs) > 1 else set[str]()
        rows = [_row(job, one, shared) for job, one in zip(self.jobs, found, strict=True)]
        lines = ["", *aligned([("job", "", "", "minutes", "mean return"), *rows]), *self.remarks]
        # A search does not repeat a failed trial.
        final = ("failed",) if (self.folder / STUDY).exists() else ()
        if not all(one.is_finished or one.state in final for one in found):
            if self.is_queued:
                lines.append("Slurm may still run some of the jobs (squeue). Resume the sweep when none is left.")
            lines.append(f"To resume: {messages.command('train', f'{RESUME}{self.folder}')}")
        return lines

    def problems(self) -> list[str]:
        """Sentences for the end of a sweep: the jobs that failed, and the number of jobs that were not run."""
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
        """Whether a job is not finished."""
        return self.folder is not None and any(not outcome(self.folder / job.folder).is_finished for job in self.jobs)


sweep = Sweep()


def take_options(arguments: Sequence[str]) -> list[str]:
    """Apply the arguments ``sweep.KEY=VALUE`` of the command line; returns the arguments for Hydra.

    Raises:
        ConfigError: there is no such option, or no sweep to resume.
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
    choices = dict[str, list[str]]()  # the last override of a key counts
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
    """The overrides of a sweep: first of the file of ``sweep=NAME``, then of the command line."""
    params = cfg.hydra.sweeper.get("params") or {}
    return [f"{key}={value}" for key, value in params.items()] + [str(text) for text in cfg.hydra.overrides.task]


def record_failure(folder: Path, error: Exception, cfg: DictConfig | None = None) -> None:
    """Print why the job in ``folder`` failed, and write the reason into its summary as one sentence.

    The summary stays if another process runs the job or has finished it.
    """
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
    except ConfigError as refused:  # another process runs the job, as ``error`` may say already
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
    """Lines of text with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _row(job: Job, found: Outcome, shared: set[str]) -> tuple[str, ...]:
    """The cells of a job's line, without overrides that all jobs share."""
    seconds, mean = found.summary.get("wall_time_s"), found.mean
    return (
        job.folder,
        " ".join(changes.without_escapes(text) for text in job.overrides if text not in shared),
        found.state,
        "" if seconds is None else f"{seconds / 60:.1f}",
        "" if mean is None else f"{mean:.2f}",
    )
