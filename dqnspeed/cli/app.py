"""What the entry points share: where ``conf/`` is, checks before anything is made, errors as one sentence."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn, cast

from hydra._internal.utils import get_args_parser
from hydra.conf import HydraConf
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, open_dict
from omegaconf.errors import OmegaConfBaseException

from dqnspeed import about, envs
from dqnspeed.algorithms import algorithm_of, check_fits
from dqnspeed.algorithms.footprint import check_footprint
from dqnspeed.cli import compose
from dqnspeed.cli.compose import from_hydra
from dqnspeed.config.combinations import untuned, unused
from dqnspeed.config.options import ConfigError, nearest
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.precision import check_execution
from dqnspeed.execution.threads import check_threads
from dqnspeed.runs.folder_lock import locked_folder, new_folder
from dqnspeed.tracking.video import check_video

log = logging.getLogger(__name__)

USAGE_EXIT_CODE = 2
FULL_ERROR = os.environ.get("HYDRA_FULL_ERROR") == "1"  # as the user set it
USER_ERRORS = (ConfigError, HydraException, OmegaConfBaseException)
READERS = ("hydra", "omegaconf", "yaml")


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
        if not self._told and not isinstance(
            error, FileNotFoundError
        ):  # the run itself notices that its folder is gone
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
            users = is_user_error(error)
            if FULL_ERROR or not (users or isinstance(error, RunError)):
                traceback.print_exc()
            sentence = explain(error) if users else str(error) or type(error).__name__
            print(f"dqnspeed: {sentence}", file=sys.stderr)
            self.failed.append(f"{folder}: {sentence.splitlines()[0]}")

    def told(self) -> list[str]:
        """What there is to tell at the end: jobs that failed, and those that were left out."""
        left, lines = self.jobs - self._begun if self._begun else 0, []  # a launcher may begin them elsewhere
        if self.failed:
            lines = [f"dqnspeed: {len(self.failed)} of {self.jobs} jobs failed:", *(f"  {job}" for job in self.failed)]
        if left:
            lines.append(f"dqnspeed: the sweep was ended: {left} of its {self.jobs} jobs were left out.")
        return lines


sweep = Sweep()


class Preflight(Callback):
    """Checks every job of a run or a sweep, and claims its folder, before Hydra writes the first file."""

    def __init__(self) -> None:
        self._held = contextlib.ExitStack()

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        with one_sentence():
            HydraConfig.instance().cfg = cast("HydraConf", config)  # folders may be named by it
            if _is_given(config, "hydra.run.dir"):
                _check_folder_is_new("hydra.run.dir", Path(config.hydra.run.dir))
            _check_jobs([(config, config.hydra.overrides.task)])
            self._held.enter_context(_claimed(config, "run"))

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        with one_sentence():
            jobs = list(_jobs_in_new_folders(config))
            _check_jobs(jobs)
            self._held.enter_context(_claimed(config, "sweep"))
            sweep.jobs = len(jobs)

    def on_run_end(self, config: DictConfig, **_: Any) -> None:
        self._held.close()

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        self._held.close()


def sweep_jobs(cfg: DictConfig, loader: ConfigLoader) -> Iterator[list[str]]:
    """The overrides of each job that Hydra's basic sweeper is going to run."""
    params = cfg.hydra.sweeper.get("params") or {}
    given = [f"{key}={value}" for key, value in params.items()] + list(cfg.hydra.overrides.task)
    choices = dict[str, list[str]]()  # the last one given counts
    for override in OverridesParser.create(config_loader=loader).parse_overrides(given):
        key = override.get_key_element()
        if override.is_sweep_override() and not override.is_discrete_sweep():
            raise ConfigError(f"{override.input_line}: no list of values to sweep over; give {key}=VALUE,VALUE.")
        if override.is_sweep_override():
            choices[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
        else:
            choices[key] = [str(override.input_line)]
    return (list(job) for job in itertools.product(*choices.values()))


def _jobs_in_new_folders(config: DictConfig) -> Iterator[tuple[DictConfig, list[str]]]:
    loader, folders = GlobalHydra.instance().config_loader(), set[Path]()
    for number, overrides in enumerate(sweep_jobs(config, loader)):
        job = loader.load_sweep_config(config, overrides)
        with open_dict(job):
            job.hydra.job.id = job.hydra.job.num = number
        HydraConfig.instance().cfg = cast("HydraConf", job)
        folder = Path(job.hydra.sweep.dir, job.hydra.sweep.subdir)
        if _is_given(config, "hydra.sweep.dir"):
            _check_folder_is_new("hydra.sweep.dir", folder)
        if folder in folders:
            raise ConfigError(f"hydra.sweep.subdir={job.hydra.sweep.subdir}: several jobs would write there.")
        folders.add(folder)
        yield job, overrides
    if not folders:
        raise ConfigError("-m: this sweep has no jobs, since one of its options has no values.")


@contextlib.contextmanager
def _claimed(config: DictConfig, mode: str) -> Iterator[None]:
    """The folder of a ``run`` or a ``sweep``: what was asked for, else a new one, whose name Hydra is told."""
    option, folder = f"hydra.{mode}.dir", Path(config.hydra[mode].dir)
    if not config.hydra[mode].dir:
        raise ConfigError(f"{option}=: name a folder.")
    try:
        if _is_given(config, option):
            folder.mkdir(parents=True, exist_ok=True)
        else:
            folder = new_folder(folder)
    except OSError as error:
        raise ConfigError(f"{option}={folder}: cannot be made ({error.strerror}).") from error
    if str(folder) != config.hydra[mode].dir:
        config.hydra[mode].dir = str(folder)
        config.hydra.overrides.hydra.append(f"{option}={_quoted(str(folder))}")  # jobs of a sweep are composed anew
    with locked_folder(folder, resumed=False):
        yield


def _is_given(config: DictConfig, option: str) -> bool:
    """Whether the command line says where to write; a default folder gets another name where it exists."""
    return any(line.lstrip("+").startswith(f"{option}=") for line in config.hydra.overrides.hydra)


def _quoted(text: str) -> str:
    return "'" + re.sub(r"(\\*)'", r"\1\1\'", text) + "'"


def check_run(run: RunConfig) -> EnvSpec:
    """Everything that can be wrong with a run before it begins; returns the shapes of its environment.

    Raises:
        ConfigError: the environment, the network, the execution and the memory of this machine do not go together.
    """
    check_execution(run)
    check_threads(run)
    with envs.Watchdog(run.parallelism.timeout_s, functools.partial(_tell_of_silence, run)):
        spec = envs.describe(run)
        doubts = envs.probe(run.env, run.model.input_scale)
    algorithm_of(run).check_spec(run, spec)
    check_fits(run, spec)
    check_footprint(run, spec)
    check_video(run, spec)
    for doubt in doubts:
        log.warning("%s", doubt)
    return spec


def _tell_of_silence(run: RunConfig, line: str) -> None:
    limit = run.parallelism.timeout_s
    print(
        f"dqnspeed: env.id={run.env.id}: has not answered for {limit:g} s ({line}); Ctrl-C ends the wait.",
        file=sys.stderr,
        flush=True,
    )


def _check_jobs(jobs: Iterable[tuple[DictConfig, Iterable[str]]]) -> None:
    told = dict[str, None]()  # in their order, each once
    for config, given in jobs:
        run, overrides = from_hydra(config), list(given)
        check_run(run)
        told |= dict.fromkeys([*untuned(run, overrides), *unused(run, overrides), *unbounded(run, overrides)])
    for sentence in told:
        log.warning("%s", sentence)


def unbounded(run: RunConfig, overrides: Iterable[str]) -> Iterator[str]:
    """A sentence where nobody has said at which mean return the game counts as solved."""
    if run.stop.reward_bound is not None or compose.bound_of(run.env.id) is not None:
        return
    if not any("reward_bound=" in override for override in overrides):
        limits = {"stop.max_steps": run.stop.max_steps, "stop.max_minutes": run.stop.max_minutes}
        ends = [f"at {key}={value:g}" for key, value in limits.items() if value is not None]
        yield (
            f"no reward bound is known for {run.env.id}; the run ends {' or '.join(ends) or 'when it is interrupted'}; "
            f"stop.reward_bound=NUMBER sets one."
        )


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
    except RunError as error:
        fail(str(error), code=1)
    except Exception as error:
        if not is_user_error(error):
            raise
        if FULL_ERROR:
            traceback.print_exc()
        fail(explain(error))


def is_user_error(error: Exception) -> bool:
    """Whether this is a mistake of the user: it is told as one, or Hydra and what reads options for it raised it."""
    if isinstance(error, USER_ERRORS):
        return True
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    known = [package for package in (name.partition(".")[0] for name in names) if package in ("dqnspeed", *READERS)]
    return bool(known) and known[-1] in READERS


def fail(sentence: str, code: int = USAGE_EXIT_CODE) -> NoReturn:
    print(f"dqnspeed: {sentence}", file=sys.stderr)
    sys.exit(code)


def run_app(job: Callable[..., Any]) -> None:
    """Run a command; its errors come out as one sentence, and a sweep tells what became of its jobs."""
    if "--version" in sys.argv[1:]:
        print(about())
        return
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then hands errors over instead of printing them
    # As with python -m, in child processes too; but last, so that they cannot find another dqnspeed than this process.
    if not getattr(sys.flags, "safe_path", False) and not {"", str(Path.cwd())} & set(sys.path):
        sys.path.append(str(Path.cwd()))
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


def check_flags() -> None:
    """Raise :class:`ConfigError` at a flag that Hydra would answer with its usage."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            get_args_parser().parse_args()
    except SystemExit as error:
        advice = "flags go before or after all KEY=VALUE" if "=" in printed.getvalue() else "see --hydra-help"
        raise ConfigError(f"{printed.getvalue().rpartition('error: ')[2].strip()}; {advice}.") from error


def explain(error: BaseException) -> str:
    """One sentence for a composition error, with the nearest names where a name was mistyped."""
    if isinstance(error, ConfigError):
        return str(error)
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    text = str(error)
    if mark := getattr(error, "problem_mark", None):  # of YAML, in a file or in a value
        place = f"{mark.name}, line {mark.line + 1}" if mark.buffer is None else mark.buffer.rstrip("\0")
        return f"{place}: {getattr(error, 'problem', '')}."
    if isinstance(error, MissingConfigException):
        return _explain_missing_option(error, text)
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}."
    if isinstance(error, UnicodeDecodeError):
        return f"a file of options is not UTF-8: {error}."
    if sweep := re.search(r"(?:Ambiguous value for argument|Sweep parameters) '(.*)'", text):
        return (
            f"{sweep.group(1)}: a sweep over several values needs dqnspeed.train -m, and a value with a comma quotes."
        )
    if isinstance(error, OverrideParseException):
        quoted = "KEY='\"VALUE\"' where it has other signs"
        return f"{error.override}: cannot be read; give GROUP=OPTION or KEY=VALUE ({quoted})."
    if "Config group override must be" in text:
        given = [
            f"{argument}: " for argument in sys.argv[1:] if re.match(r"[\w/]*=([\d.]*|null|true|false)$", argument)
        ]
        return f"{''.join(given[:1])}a group takes the name of one of its options."
    known = re.search(r"Could not append to config\. An item is already at '([\w.@/]+)'", text)
    if known:
        return f"+{known.group(1)}: is an option already; drop the +."
    full_key = getattr(cause, "full_key", None) or "".join(re.findall(r"full_key: (\S+)", text)[:1])
    file = re.match(r"In '(.*)': \w+ raised while composing config:\n(.*)", text)
    where = f", in the option file {file.group(1)}" if file else ""
    if full_key and re.search(r"Key '.+' (?:is )?not in", f"{text}\n{cause}"):
        lacking = re.search(r"object_type=(\w+)", f"{text}\n{cause}")
        return f"{_as_given(full_key)}: {compose.unknown(full_key, lacking and lacking.group(1), where)}."
    if full_key and "is not Optional" in str(cause):
        return f"{full_key}=null: needs a value."
    if file:
        return f"{full_key or file.group(1)}: {file.group(2).rstrip('.')}{where}."
    if full_key and "missing mandatory value" in str(cause):
        return f"{full_key}: has no value."
    if full_key:
        return f"{full_key}: {_first_line(cause)}."
    group = re.search(r"Could not override '([\w./]+)'", text)
    if group and "No match in the defaults list" in text:
        return f"{group.group(1)}: there is no such option{nearest(group.group(1), compose.keys())}."
    return f"{_first_line(error)}."


def _as_given(key: str) -> str:
    """``key=value`` where the command line gives it one."""
    given = [a for a in sys.argv[1:] if a.lstrip("+").startswith(f"{key}=")]
    return given[-1].lstrip("+") if given else key


def _explain_missing_option(error: MissingConfigException, text: str) -> str:
    missing = error.missing_cfg_file
    group, _, name = str(missing).rpartition("/")
    allowed = list(error.options or [])
    if not group:
        return f"{_first_line(error)}."
    choose = f"; choose one of {', '.join(allowed)}" if allowed else ""
    return f"{group}={name}: there is no such option{nearest(name, allowed)}{choose}."


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")
