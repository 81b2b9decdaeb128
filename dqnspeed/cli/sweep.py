"""The jobs of a sweep: their overrides and their failures."""

from __future__ import annotations

import contextlib
import itertools
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from dqnspeed.cli.errors import FULL_ERROR, RunError, explain, is_user_error
from dqnspeed.config.options import ConfigError


class Sweep:
    """Counts the jobs of the sweep in this process, and records those that fail."""

    def __init__(self) -> None:
        self.jobs = self._started = 0
        self.failed: list[str] = []

    @contextlib.contextmanager
    def job(self, folder: Path) -> Iterator[None]:
        """Print and record the error of a job that fails inside, so that the next one can start."""
        self._started += 1
        try:
            yield
        except Exception as error:
            if not self.jobs:
                raise  # a launcher runs it in another process and handles the error
            users = is_user_error(error)
            if FULL_ERROR or not (users or isinstance(error, RunError)):
                traceback.print_exc()
            sentence = explain(error) if users else str(error) or type(error).__name__
            print(f"dqnspeed: {sentence}", file=sys.stderr)
            self.failed.append(f"{folder}: {sentence.splitlines()[0]}")

    def report(self) -> list[str]:
        """Lines for the end of a sweep: the jobs that failed, and the number that did not run."""
        left, lines = self.jobs - self._started if self._started else 0, []  # a launcher may run them elsewhere
        if self.failed:
            lines = [f"dqnspeed: {len(self.failed)} of {self.jobs} jobs failed:", *(f"  {job}" for job in self.failed)]
        if left:
            lines.append(f"dqnspeed: the sweep was ended: {left} of its {self.jobs} jobs were left out.")
        return lines


sweep = Sweep()


def sweep_jobs(cfg: DictConfig, loader: ConfigLoader) -> Iterator[list[str]]:
    """The overrides of each job that Hydra's basic sweeper will run."""
    params = cfg.hydra.sweeper.get("params") or {}
    overrides = [f"{key}={value}" for key, value in params.items()] + list(cfg.hydra.overrides.task)
    choices = dict[str, list[str]]()  # the last one given counts
    for override in OverridesParser.create(config_loader=loader).parse_overrides(overrides):
        key = override.get_key_element()
        if override.is_sweep_override() and not override.is_discrete_sweep():
            raise ConfigError(f"{override.input_line}: no list of values to sweep over; give {key}=VALUE,VALUE.")
        if override.is_sweep_override():
            choices[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
        else:
            choices[key] = [str(override.input_line)]
    return (list(job) for job in itertools.product(*choices.values()))
