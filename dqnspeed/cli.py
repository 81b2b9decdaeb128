"""What the entry points share: where ``conf/`` is, checks before anything is made, errors as one sentence."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from dqnspeed import compose, envs
from dqnspeed.combinations import unused
from dqnspeed.compose import from_hydra
from dqnspeed.config import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.learners import check_execution
from dqnspeed.models import check_network
from dqnspeed.options import ConfigError
from dqnspeed.replay import check_fits
from dqnspeed.tracking.video import check_video

log = logging.getLogger(__name__)

USAGE_EXIT_CODE = 2
FULL_ERROR = os.environ.get("HYDRA_FULL_ERROR") == "1"  # as the user set it
USER_ERRORS = (ConfigError, HydraException, OmegaConfBaseException)


class RunError(Exception):
    """A run that was begun came to no good end; the message is for the user."""


class LogFile(logging.FileHandler):
    """``train.log``; a disk that refuses it is told in one sentence, once, and it is tried again with each record."""

    _told = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # it could not even be opened
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        stream, self.stream = self.stream, None
        if stream is not None:
            with contextlib.suppress(OSError):  # what it still holds goes with it
                stream.close()
        if not self._told:
            print(f"dqnspeed: {self.baseFilename} could not be written: {error.strerror}.", file=sys.stderr)
        self._told = True


class Sweep:
    """What became of the jobs of the sweep that this process runs."""

    def __init__(self) -> None:
        self.jobs = self._begun = 0
        self.failed: list[str] = []

    @contextlib.contextmanager
    def job(self, folder: Path) -> Iterator[None]:
        """A job that fails inside is told and recorded, and the next one can begin."""
        self._begun += 1
        try:
            yield
        except Exception as error:
            if not self.jobs:
                raise  # a launcher runs it in a process of its own, and tells Hydra
            if FULL_ERROR or not isinstance(error, (RunError, *USER_ERRORS)):
                traceback.print_exc()
            sentence = explain(error) if isinstance(error, USER_ERRORS) else str(error) or type(error).__name__
            print(f"dqnspeed: {sentence}", file=sys.stderr)
            self.failed.append(f"{folder}: {sentence.splitlines()[0]}")

    def told(self) -> list[str]:
        """What there is to tell at the end: jobs that failed, and those that were left out."""
        left, lines = self.jobs - self._begun, []
        if self.failed:
            lines = [f"dqnspeed: {len(self.failed)} of {self.jobs} jobs failed:", *(f"  {job}" for job in self.failed)]
        if left:
            lines.append(f"dqnspeed: the sweep was ended: {left} of its {self.jobs} jobs were left out.")
        return lines


sweep = Sweep()


class Preflight(Callback):
    """Checks every job of a run or a sweep before Hydra makes the first folder."""

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        with one_sentence():
            _check_jobs([(config, config.hydra.overrides.task)])
            _check_folder_is_new("hydra.run.dir", Path(config.hydra.run.dir))

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        with one_sentence():
            for folder in Path(config.hydra.sweep.dir).glob("*"):
                _check_folder_is_new("hydra.sweep.dir", folder)
            loader = GlobalHydra.instance().config_loader()
            jobs = list(sweep_jobs(config, loader))
            _check_jobs((loader.load_sweep_config(config, overrides), overrides) for overrides in jobs)
            sweep.jobs = len(jobs)


def sweep_jobs(cfg: DictConfig, loader: ConfigLoader) -> Iterator[list[str]]:
    """The overrides of each job that Hydra's basic sweeper is going to run."""
    given = list(cfg.hydra.overrides.task)
    params = cfg.hydra.sweeper.get("params") or {}
    given += [f"{key}={value}" for key, value in params.items()]
    choices = []
    for override in OverridesParser.create(config_loader=loader).parse_overrides(given):
        if override.is_sweep_override():
            key = override.get_key_element()
            choices.append([f"{key}={value}" for value in override.sweep_string_iterator()])
        else:
            choices.append([str(override.input_line)])
    return (list(job) for job in itertools.product(*choices))


def check_run(run: RunConfig) -> EnvSpec:
    """Everything that can be wrong with a run before it begins; returns the shapes of its environment.

    Raises:
        ConfigError: the environment, the network, the execution and the memory of this machine do not go together.
    """
    check_execution(run)
    spec = envs.describe(run)
    if run.algo.name != "q_learning":  # a table has no layers
        check_network(run.model, spec.observation_shape)
    check_fits(run, spec)
    check_video(run, spec)
    for doubt in envs.probe(run.env):
        log.warning("%s", doubt)
    return spec


def _check_jobs(jobs: Iterable[tuple[DictConfig, Iterable[str]]]) -> None:
    told = dict[str, None]()  # in their order, each once
    for config, overrides in jobs:
        run = from_hydra(config)
        check_run(run)
        told |= dict.fromkeys(unused(run, overrides))
    for sentence in told:
        log.warning("%s", sentence)


def _check_folder_is_new(option: str, folder: Path) -> None:
    if (folder / "metrics.jsonl").exists():
        raise ConfigError(f"{option}: {folder} holds another run already; name a new folder.")


@contextlib.contextmanager
def one_sentence() -> Iterator[None]:
    """Turns the mistakes of a user into one sentence on stderr and exit code 2, the bad end of a run into exit code 1.

    ``HYDRA_FULL_ERROR=1`` shows the traceback before it.
    """
    try:
        yield
    except USER_ERRORS as error:
        if FULL_ERROR:
            traceback.print_exc()
        fail(explain(error))
    except RunError as error:
        fail(str(error), code=1)


def fail(sentence: str, code: int = USAGE_EXIT_CODE) -> NoReturn:
    print(f"dqnspeed: {sentence}", file=sys.stderr)
    sys.exit(code)


def run_app(job: Callable[..., Any]) -> None:
    """Run a ``hydra.main`` function; its errors come out as one sentence, and a sweep tells what became of its jobs."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then hands errors over instead of printing them
    try:
        with one_sentence():
            job()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    finally:
        for line in sweep.told():
            print(line, file=sys.stderr)
    if sweep.failed:
        sys.exit(1)


def explain(error: BaseException) -> str:
    """One sentence for a composition error, with the nearest names where a name was mistyped."""
    if isinstance(error, ConfigError):
        return str(error)
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    text = str(error)
    if isinstance(error, MissingConfigException):
        return _explain_missing_option(error, text)
    unknown = re.search(r"Could not (?:override|append to config\. An item is already at) '([\w.@/]+)'", text)
    not_in = re.search(r"Key '([\w.]+)' (?:is )?not in", f"{text}\n{cause}")
    if unknown and "already at" in text:
        return f"+{unknown.group(1)}: is an option already; drop the +."
    if unknown and not_in:
        key = unknown.group(1)
        return f"{key}: there is no such option{_nearest(key, compose.keys())}."
    if isinstance(cause, OmegaConfBaseException) and cause.full_key:
        return f"{cause.full_key}: {_first_line(cause)}."
    group = re.search(r"Could not override '([\w./]+)'", text)
    if group and "No match in the defaults list" in text:
        return f"{group.group(1)}: there is no such option{_nearest(group.group(1), compose.keys())}."
    return f"{_first_line(error)}."


def _explain_missing_option(error: MissingConfigException, text: str) -> str:
    missing = error.missing_cfg_file
    group, _, name = str(missing).rpartition("/")
    allowed = list(error.options or [])
    if not group:
        return f"{_first_line(error)}."
    return f"{group}={name}: there is no such option{_nearest(name, allowed)}; choose one of {', '.join(allowed)}."


def _nearest(word: str, words: list[str]) -> str:
    near = difflib.get_close_matches(word, words, n=3, cutoff=0.6)
    if not near:
        near = [w for w in words if w.rpartition(".")[2] == word.rpartition(".")[2]][:3]
    return f" (nearest: {', '.join(near)})" if near else ""


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")
