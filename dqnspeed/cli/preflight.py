"""Checks before a run: of every job of a run or a sweep, and of its output folder."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import hydra
from hydra.conf import HydraConf
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from dqnspeed import envs
from dqnspeed.actors.base import Parallelism
from dqnspeed.algorithms import algorithm_of, check_fits, make_network
from dqnspeed.algorithms.memory_estimate import buffer_device
from dqnspeed.cli import optuna_search
from dqnspeed.cli.app import one_sentence
from dqnspeed.cli.compose import as_meant, from_hydra
from dqnspeed.cli.config_store import bound_of, names
from dqnspeed.cli.dry_run import print_plan
from dqnspeed.cli.ray_jobs import check_launcher, is_ray
from dqnspeed.cli.schemas import default_options
from dqnspeed.cli.sweep import sweep, sweep_jobs
from dqnspeed.cli.sweep_record import FOLDER, Job, Line, earlier_jobs, outcome, quoted
from dqnspeed.config.combinations import untuned, unused
from dqnspeed.config.options import ConfigError, nearest
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec
from dqnspeed.envs.backends import auto
from dqnspeed.execution.precision import check_execution, check_learner
from dqnspeed.execution.threads import check_threads
from dqnspeed.system import machine, seeding
from dqnspeed.tracking import make_trackers
from dqnspeed.tracking.hub import with_commits
from dqnspeed.tracking.live_page import check_live
from dqnspeed.tracking.run_folder import SWEEP, holds_run, looking_into, why_not_made
from dqnspeed.tracking.video import check_video
from dqnspeed.tracking.wandb import overruled
from dqnspeed.training.folder_lock import locked_folder, new_folder
from dqnspeed.training.initial_weights import initial_weights

log = logging.getLogger(__name__)

JobConfig = tuple[Job, DictConfig]  # a job and its composed configuration
CheckedJob = tuple[Job, RunConfig, EnvSpec]


class Preflight(Callback):
    """Checks every job of a run or a sweep, and locks its folder, before Hydra writes the first file."""

    def __init__(self) -> None:
        self._locks = contextlib.ExitStack()

    def __reduce__(self) -> tuple[type[Preflight], tuple[()]]:
        return Preflight, ()  # processes of a launcher get a copy without the locks

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        with _ended_by_any_error():
            HydraConfig.instance().cfg = cast("HydraConf", config)  # folder names may refer to it
            check_line(config, sweeps=False)
            if is_set(config, "hydra.run.dir"):
                check_folder_is_new("hydra.run.dir", Path(config.hydra.run.dir))
            checked = check_jobs([(Job(str(config.hydra.run.dir), list(config.hydra.overrides.task)), config)])
            if sweep.dry_run:
                print_plan(checked)
                sys.exit()
            self._locks.enter_context(output_folder(config, "run"))

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        with _ended_by_any_error():
            check_line(config, sweeps=True)
            check_launcher(config.hydra.launcher)
            folder = Path(config.hydra.sweep.dir)
            known = earlier_jobs(folder, bool(sweep.trust)) if is_set(config, FOLDER) else None
            found = _new_jobs(config) if known is None else _missing_jobs(config, known)
            composed, trials = _composed_jobs(config, found, new=known is None), 1
            if optuna_search.is_study(config.hydra):
                composed = itertools.chain(composed, [_trial(config, number=len(known or []))])
                trials = int(config.hydra.sweeper.n_trials) - len(known or [])
            checked = check_jobs(composed)
            joining = [run.parallelism.name for _, run, _ in checked if run.parallelism.joins_cluster]
            if joining and is_ray(config.hydra.launcher):
                raise ConfigError(
                    f"parallelism={joining[0]}: joins a cluster, which a job of hydra/launcher=ray cannot do."
                )
            if sweep.dry_run:
                print_plan(checked, trials)
                sys.exit()
            self._locks.enter_context(output_folder(config, "sweep", resumed=known is not None))
            if is_set(config, FOLDER) and earlier_jobs(folder, bool(sweep.trust)) != known:
                raise ConfigError(f"{FOLDER}={folder}: another sweep has written there meanwhile. Start again.")
            new = [] if optuna_search.is_study(config.hydra) else [job for job, _, _ in checked]
            sweep.begin(Path(config.hydra.sweep.dir), Line.of_this_process(), new if known is None else known)

    def on_run_end(self, config: DictConfig, **_: Any) -> None:
        self._locks.close()

    on_multirun_end = on_run_end


@contextlib.contextmanager
def _ended_by_any_error() -> Iterator[None]:
    """Exit at any error, because Hydra only warns of errors in callbacks."""
    try:
        with one_sentence():
            yield
    except Exception:
        traceback.print_exc()
        sys.exit(1)


OF_SWEEPS = "hydra/launcher", "hydra/sweeper", "hydra.launcher.", "hydra.sweeper.", "hydra.sweep."


def check_line(config: DictConfig, sweeps: bool) -> None:
    """Raise :class:`ConfigError` for mistakes that Hydra ignores.

    These are overrides for the other mode, and several options of one group.
    """
    overrides = config.hydra.overrides
    if config.hydra.job.chdir:
        raise ConfigError("hydra.job.chdir=true: a run writes into its own folder in any case; leave it out.")
    for line in overrides.hydra:
        key = line.lstrip("+~").partition("=")[0]
        if not sweeps and key.startswith(OF_SWEEPS):
            raise ConfigError(f"{line}: is for sweeps; add -m on the command line.")
        if sweeps and key.startswith("hydra.run."):
            raise ConfigError(f"{line}: is for a single run; the folder of a sweep is {FOLDER}.")
    for line in overrides.task:
        group, _, options = line.partition("=")
        if group in default_options() and options.startswith("["):
            raise ConfigError(f"{line}: takes one option; several are a sweep, -m {group}={options.strip('[]')}.")


def compose_line(overrides: Sequence[str]) -> DictConfig:
    """Compose the configuration of ``overrides`` with Hydra's own part, to which names of folders may refer.

    Raises:
        ConfigError: the overrides are of a sweep, or name several options of a group.
    """
    config = hydra.compose("config", overrides=as_meant(with_commits(overrides)), return_hydra_config=True)
    HydraConfig.instance().cfg = cast("HydraConf", config)
    if config.hydra.mode == RunMode.MULTIRUN:
        raise ConfigError(
            f"sweep={config.hydra.runtime.choices.sweep}: a sweep needs the command line of dqnspeed.train."
        )
    check_line(config, sweeps=False)
    return config


def check_run(run: RunConfig) -> EnvSpec:
    """Check everything about a run before it starts; returns the shapes of its environment.

    Raises:
        ConfigError: environment, network, execution and this machine's memory do not fit together.
    """
    typed(run.parallelism, Parallelism).check_here()
    make_trackers(run.tracking)
    check_execution(run)
    check_learner(run)
    check_threads(run)
    with envs.Watchdog(run.parallelism.timeout_s, functools.partial(_report_silence, run)):
        spec = envs.describe(run)
        warnings = envs.probe(run.env, run.model.input_scale)
    algorithm_of(run).check_spec(run, spec)
    check_fits(run, spec, buffer_device(run, spec))
    check_video(run, spec)
    check_live(run)
    for warning in (*warnings, *emulated(run), *overruled(run.tracking)):
        log.warning("%s", warning)
    return spec


def emulated(run: RunConfig) -> Iterator[str]:
    """A sentence if the device has no instructions for the chosen precision."""
    if run.execution.precision == "bf16" != machine.best_precision(run.device):
        yield (
            f"execution.precision=bf16: {machine.pick_device(run.device)} has no instructions for it here, and takes "
            f"several times as long as for fp32; auto chooses."
        )


def _report_silence(run: RunConfig, line: str) -> None:
    limit = run.parallelism.timeout_s
    sentence = f"env.id={run.env.id}: has not answered for {limit:g} s ({line}); Ctrl-C ends the wait."
    print(f"dqnspeed: {sentence}", file=sys.stderr, flush=True)


def check_jobs(jobs: Iterable[JobConfig]) -> list[CheckedJob]:
    """Check jobs, and warn of options that have no effect.

    Returns:
        Each job, its configuration, and the shapes of its environment.

    Raises:
        ConfigError: one of them cannot be run.
    """
    checked, sentences = [], dict[str, None]()  # in their order, each once
    for job, config in jobs:
        run, overrides = from_hydra(config), job.overrides
        spec = check_run(run)
        if run.init is not None:
            with seeding.preserve():
                initial_weights(run, make_network(run, spec))
        checked.append((job, run, spec))
        if OmegaConf.select(config, "hydra.runtime.choices.backend") == "auto":
            sentences |= dict.fromkeys(auto.not_installed(run))
        sentences |= dict.fromkeys(without_numbers(config, run, overrides))
        sentences |= dict.fromkeys([*untuned(run, overrides), *unused(run, overrides), *unbounded(run, overrides)])
    for sentence in sentences:
        log.warning("%s", sentence)
    return checked


def without_numbers(config: DictConfig, run: RunConfig, overrides: Iterable[str]) -> Iterator[str]:
    """A sentence if the experiment has no numbers for the algorithm.

    Raises:
        ConfigError: an override names numbers that do not exist.
    """
    chosen = OmegaConf.select(config, "hydra.runtime.choices.numbers")
    if chosen is None:
        return
    if any(Path(source.path, "numbers", f"{chosen}.yaml").is_file() for source in config.hydra.runtime.config_sources):
        return
    if f"numbers={chosen}" in overrides:
        raise ConfigError(f"numbers={chosen}: there is no such option{nearest(chosen, names()['numbers'])}.")
    yield (
        f"experiment={run.experiment.name}: has no numbers for algo={run.algo.name}, which keeps its defaults; write "
        f"numbers/{chosen}.yaml to change them."
    )


def unbounded(run: RunConfig, overrides: Iterable[str]) -> Iterator[str]:
    """A sentence if no reward bound is known or set."""
    if run.stop.reward_bound is not None or bound_of(run.env.id) is not None:
        return
    if not any("reward_bound=" in override for override in overrides):
        limits = {"stop.max_steps": run.stop.max_steps, "stop.max_minutes": run.stop.max_minutes}
        ends = [f"at {key}={value:g}" for key, value in limits.items() if value is not None]
        yield (
            f"no reward bound is known for {run.env.id}; the run ends {' or '.join(ends) or 'when it is interrupted'}; "
            f"stop.reward_bound=NUMBER sets one."
        )


def _new_jobs(config: DictConfig) -> list[tuple[int, Job]]:
    """The jobs of a new sweep with their numbers, without folders; a search has none yet."""
    if optuna_search.is_study(config.hydra):
        return []
    jobs = [(number, Job("", overrides)) for number, overrides in enumerate(sweep_jobs(config, _loader()))]
    if not jobs:
        raise ConfigError("-m: this sweep has no jobs, since one of its options has no values.")
    return jobs


def _missing_jobs(config: DictConfig, known: Sequence[Job]) -> list[tuple[int, Job]]:
    """Unfinished jobs of an earlier sweep with their numbers."""
    missing = []
    for number, job in enumerate(known):
        folder = Path(config.hydra.sweep.dir, job.folder)
        found = outcome(folder)
        given_up = found.state == "failed" and optuna_search.is_study(config.hydra)  # a search does not repeat trials
        if found.is_finished or given_up:
            continue
        if folder.is_dir():
            with locked_folder(folder, resumed=True):  # fails if another process runs the job
                pass
        missing.append((number, job))
    return missing


def _composed_jobs(config: DictConfig, jobs: Sequence[tuple[int, Job]], new: bool) -> Iterator[JobConfig]:
    """Compose jobs one after another."""
    folders = set[str]()
    for number, job in jobs:
        composed, job_config = _composed(config, job.overrides, number)
        if new:
            if is_set(config, FOLDER):
                check_folder_is_new(FOLDER, Path(config.hydra.sweep.dir, composed.folder))
            if composed.folder in folders:
                raise ConfigError(f"hydra.sweep.subdir={composed.folder}: several jobs would write there.")
            folders.add(composed.folder)
        yield composed if new else job, job_config


def _trial(config: DictConfig, number: int) -> JobConfig:
    """A job of a search with random values, to be checked."""
    optuna_search.check_options(config)
    if is_set(config, FOLDER):
        check_folder_is_new(FOLDER, Path(config.hydra.sweep.dir, str(number)))
    overrides = optuna_search.any_trial(config, _loader())
    job = _composed(config, overrides, number)[1]
    optuna_search.check_objective(config, job)
    return Job("a trial", overrides), job


def _loader() -> ConfigLoader:
    return GlobalHydra.instance().config_loader()


def _composed(config: DictConfig, overrides: list[str], number: int) -> JobConfig:
    """Compose a job of the sweep ``config``."""
    folder = str(config.hydra.sweep.dir)  # resolved here, so that ${now:} is the same for all jobs
    job = _loader().load_sweep_config(config, overrides)
    with open_dict(job):
        job.hydra.job.id = job.hydra.job.num = number
    HydraConfig.instance().cfg = cast("HydraConf", job)  # names of folders may refer to it
    if str(job.hydra.sweep.dir) != folder:
        raise ConfigError(
            f"{FOLDER}={job.hydra.sweep.dir}: must be the same for all jobs; hydra.sweep.subdir may tell them apart."
        )
    return Job(str(job.hydra.sweep.subdir), overrides), job


@contextlib.contextmanager
def output_folder(config: DictConfig, mode: str, resumed: bool = False) -> Iterator[Path]:
    """Make and lock the folder of a ``run`` or a ``sweep``; a default name that is taken is changed, in Hydra too.

    Args:
        resumed: the folder is of a sweep that is resumed.

    Raises:
        ConfigError: the folder cannot be made or written, or belongs to another run.
    """
    option, named = f"hydra.{mode}.dir", str(config.hydra[mode].dir)
    if not named:
        raise ConfigError(f"{option}=: name a folder.")
    folder = Path(named)
    try:
        if is_set(config, option):
            folder.mkdir(parents=True, exist_ok=True)
        else:
            folder = new_folder(folder)
    except OSError as error:
        raise ConfigError(f"{option}={folder}: cannot be made ({why_not_made(folder, error)}).") from error
    if str(folder) != named:
        config.hydra[mode].dir = str(folder)
        config.hydra.overrides.hydra.append(f"{option}={quoted(str(folder))}")  # a sweep's jobs compose again
    with locked_folder(folder, resumed):
        yield folder


def is_set(config: DictConfig, option: str) -> bool:
    """Whether the command line sets the folder ``option``."""
    return any(line.lstrip("+").startswith(f"{option}=") for line in config.hydra.overrides.hydra)


def check_folder_is_new(option: str, folder: Path) -> None:
    """Raise :class:`ConfigError` if the ``folder`` that ``option`` names holds a run, or a sweep."""
    with looking_into(folder):
        if (folder / SWEEP).exists():
            raise ConfigError(f"{option}: {folder} holds a sweep; name a new folder.")
        if holds_run(folder):
            raise ConfigError(f"{option}: {folder} holds another run already; name a new folder.")
