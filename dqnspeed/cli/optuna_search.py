"""``hydra/sweeper=optuna``: a search by Optuna, with its study in the folder of the sweep.

Trial ``n`` is the job in the folder ``n``. A resumed sweep continues the trials that have no result in the study.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import hydra
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, OmegaConf

from dqnspeed.cli.key_value import typed
from dqnspeed.cli.sweep import sweep, swept
from dqnspeed.cli.sweep_record import Job, Outcome, outcome
from dqnspeed.config.changes import without_escapes
from dqnspeed.config.options import ConfigError, check_installed, option
from dqnspeed.system import messages
from dqnspeed.tracking import Callback, TrainingState
from dqnspeed.tracking.run_folder import STUDY

if TYPE_CHECKING:
    import optuna

NAME = "dqnspeed"  # of the study in its file
# Objectives and their directions.
RETURN, TIME = "return", "time_to_solve"
DIRECTIONS = {RETURN: "maximize", TIME: "minimize"}
UNSOLVED = 2  # a job that is not solved counts this many times its time limit
BEST = 3  # most trials that are named at the end of a search for two objectives


@dataclass(frozen=True)
class StudyOptions:
    """The options of ``hydra/sweeper=optuna``; ``conf/hydra/sweeper/optuna.yaml`` has their defaults."""

    objective: list[str] = option("what is searched for, one or both", choices=tuple(DIRECTIONS))
    n_trials: int = option("jobs in all", ge=1)
    n_jobs: int = option("jobs that the launcher is given at a time", ge=1)
    seed: int = option("seed of the sampler", ge=0)
    prune_every_s: float = option("seconds of training between the reports that pruning looks at", gt=0)
    sampler: Any = option("one of optuna.samplers, which takes a seed")
    pruner: Any = option("one of optuna.pruners")


def options_of(given: Mapping[str, Any]) -> StudyOptions:
    """The checked options of a search; sampler and pruner are not checked.

    Raises:
        ConfigError: an option is unknown, missing, of another type or out of range.
    """
    made = {name: given[name] for name in ("sampler", "pruner") if name in given}
    options = typed(StudyOptions, {**given, **dict.fromkeys(made)})
    return replace(options, **made)


def is_study(config: Any) -> bool:
    """Whether Hydra's configuration ``config`` has the sweeper of Optuna."""
    return str(config.sweeper.get("_target_")).endswith(".OptunaSweeper")


def check_options(config: DictConfig) -> None:
    """Raise :class:`ConfigError` if the options of the search cannot be used."""
    check_installed("hydra/sweeper=optuna", "optuna", "optuna")
    given = cast("dict[str, Any]", OmegaConf.to_container(config.hydra.sweeper, resolve=True))
    try:
        options = options_of({key: value for key, value in given.items() if key not in ("_target_", "params")})
    except ConfigError as error:
        raise ConfigError(f"hydra.sweeper.{error}") from error
    if not options.objective:
        raise ConfigError(f"hydra.sweeper.objective=[]: choose one of {', '.join(DIRECTIONS)}.")


def check_objective(config: DictConfig, job: DictConfig) -> None:
    """Raise :class:`ConfigError` if a ``job`` has no value of the objective."""
    if TIME in config.hydra.sweeper.objective and job.stop.max_minutes is None:
        raise ConfigError(f"hydra.sweeper.objective={TIME}: needs a limit; give stop.max_minutes=MINUTES.")


def any_trial(config: DictConfig, loader: ConfigLoader) -> list[str]:
    """The overrides of a job with a random value of each key that is searched."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    trial = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0)).ask()
    return [f"{key}={suggest(trial)}" for key, suggest in _space(config, loader).items()]


def search(options: StudyOptions, config: DictConfig, loader: ConfigLoader, launcher: Launcher) -> None:
    """Run the trials that are open, and then new trials until there are ``options.n_trials``."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    folder, space = Path(config.hydra.sweep.dir), _space(config, loader)
    study = optuna.create_study(
        storage=_storage(folder),
        study_name=NAME,
        load_if_exists=True,
        pruner=options.pruner,
        directions=[DIRECTIONS[name] for name in options.objective],
    )
    before = study.trials
    study.sampler = options.sampler(seed=options.seed + len(before))
    running = [trial for trial in before if trial.state == optuna.trial.TrialState.RUNNING]
    trials = [optuna.trial.Trial(study, trial._trial_id) for trial in running]
    try:
        while True:
            left = min(options.n_jobs - len(trials), options.n_trials - len(study.trials))
            trials += [study.ask() for _ in range(left)]
            if not trials:
                break
            jobs = [_job_of(trial, space, folder) for trial in trials]
            sweep.add(jobs)
            sweep.launch(launcher, jobs)
            for trial in trials:
                _tell(study, trial, folder / str(trial.number), options)
            trials = []
    finally:
        sweep.remarks.extend(_best(study, folder, options))


def _job_of(trial: optuna.Trial, space: Mapping[str, Suggest], folder: Path) -> Job:
    """The job of a trial, with its values of what is searched."""
    try:
        overrides = [f"{key}={suggest(trial)}" for key, suggest in space.items()]
    except ValueError as error:
        raise ConfigError(f"{folder}: earlier trials had other values to choose from ({error}).") from error
    return Job(str(trial.number), overrides, searched=list(trial.params))


def pruning(config: Any) -> list[Callback]:
    """The callback that prunes this job of a search for one objective; none for other jobs.

    Args:
        config: Hydra's own configuration.
    """
    if not is_study(config) or len(config.sweeper.objective) > 1:
        return []
    import optuna

    # The job may have another working folder.
    folder, number = Path(config.runtime.cwd, config.sweep.dir), int(config.sweep.subdir)
    study = open_study(folder, pruner=hydra.utils.instantiate(config.sweeper.pruner))
    frozen = study.trials[number]
    trial = optuna.trial.Trial(study, frozen._trial_id)
    every_s = float(config.sweeper.prune_every_s)
    return [Pruning(trial, config.sweeper.objective[0], every_s, list(frozen.intermediate_values))]


class Pruning(Callback):
    """Reports the mean return to a trial at regular times of training, and ends an unpromising run."""

    def __init__(self, trial: optuna.Trial, objective: str, every_s: float, reported: Sequence[int]):
        self._trial, self._every_s = trial, every_s
        self._sign = 1 if DIRECTIONS[objective] == "maximize" else -1
        self._reported = max(reported, default=0)

    optional = True  # the training continues if the study's file is lost

    def on_report(self, training: TrainingState, metrics: Mapping[str, float]) -> None:
        mean, period = training.return_mean, int(training.seconds // self._every_s)
        if period <= self._reported or mean is None or not math.isfinite(mean):
            return
        self._reported = period
        self._trial.report(self._sign * mean, period)
        if self._trial.should_prune():
            training.end("pruned")


def open_study(folder: Path, **options: Any) -> optuna.Study:
    """The study in ``folder``."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.load_study(study_name=NAME, storage=_storage(folder), **options)


def _storage(folder: Path) -> str:
    from sqlalchemy.engine import URL

    url = URL.create("sqlite", database=str(folder.resolve() / STUDY)).render_as_string()
    return url.replace("{", "{{").replace("}", "}}")  # Optuna formats it


def _tell(study: optuna.Study, trial: optuna.Trial, folder: Path, options: StudyOptions) -> None:
    """Give the study the result of a trial's job; the trial of a job that was interrupted stays open."""
    from optuna.trial import TrialState

    found = outcome(folder)
    values = [_value(name, found) for name in options.objective] if found.state in ("solved", "at its limit") else []
    scores = [value for value in values if value is not None]
    if found.state == "pruned":
        study.tell(trial, state=TrialState.PRUNED)
    elif len(scores) == len(options.objective):
        study.tell(trial, scores)
    elif found.is_finished or found.state == "failed":
        study.tell(trial, state=TrialState.FAIL)


def _best(study: optuna.Study, folder: Path, options: StudyOptions) -> Iterator[str]:
    """Lines on the best trials, their parameters, and the command that trains each again."""
    from optuna.trial import TrialState

    if not study.get_trials(deepcopy=False, states=[TrialState.COMPLETE]):
        return
    best = [study.best_trial] if len(options.objective) == 1 else study.best_trials
    jobs = {job.folder: job for job in sweep.jobs}
    for trial in best[:BEST]:
        job = jobs[str(trial.number)]
        pairs = zip(options.objective, trial.values, strict=True)
        scores = ", ".join(_score(name, value, outcome(folder / job.folder)) for name, value in pairs)
        chosen = " ".join(text for text in job.overrides if text.partition("=")[0] in job.searched)
        yield f"Best: trial {trial.number}, {scores}: {chosen}"
        yield f"To train it again: {messages.command('train', *sweep.line.flags, *_alone(job.overrides))}"
    if len(best) > BEST:
        yield f"{len(best) - BEST} more trials are no worse."


def _score(objective: str, value: float, job: Outcome) -> str:
    if objective == RETURN:
        return f"mean return {value:.2f}"
    return f"solved in {value:.0f} s" if job.summary.get("solved") else "not solved"


def _alone(overrides: Sequence[str]) -> list[str]:
    """The overrides of a job for a run of its own; an option of ``sweep`` would make a sweep of it."""
    return [*overrides, *(["hydra.mode=RUN"] if any(text.startswith("sweep=") for text in overrides) else [])]


def _value(objective: str, job: Outcome) -> float | None:
    """The score of a finished job; ``None`` if none of its games counts, or its files cannot be read."""
    if objective == RETURN:
        return job.mean
    if job.summary["solved"]:
        return float(job.summary["time_to_solve_s"])
    limit = job.stop.get("max_minutes")
    return None if limit is None else UNSOLVED * 60 * float(limit)


Suggest = Callable[[Any], Any]  # the value of a key, by one of Optuna's trials


def _space(config: DictConfig, loader: ConfigLoader) -> dict[str, Suggest]:
    """How each key gets its value in a trial; the last override of a key counts."""
    overrides = OverridesParser.create(config_loader=loader).parse_overrides(swept(config))
    space = {override.get_key_element(): _dimension(override) for override in overrides}
    if not any(override.is_sweep_override() for override in overrides):
        raise ConfigError("hydra/sweeper=optuna: nothing to search; give KEY=interval(A,B), range(A,B) or choice(A,B).")
    return space


def _dimension(override: Override) -> Suggest:
    key, value = override.get_key_element(), override.value()
    if not override.is_sweep_override():
        fixed = override.get_value_element_as_str()
        return lambda trial: fixed
    is_log = "log" in getattr(value, "tags", set())
    if isinstance(value, IntervalSweep):
        low, high = value.start, value.end
        if low is None or high is None or low >= high or (is_log and low <= 0):
            raise ConfigError(f"{override.input_line}: give a lower bound, above 0 with a log, and an upper one.")
        if isinstance(low, int) and isinstance(high, int):
            return lambda trial: trial.suggest_int(key, low, high, log=is_log)
        return lambda trial: trial.suggest_float(key, low, high, log=is_log)
    choices = list(override.sweep_string_iterator())
    if not choices:
        raise ConfigError(f"{override.input_line}: has no values.")
    if isinstance(value, RangeSweep) and not value.shuffle and all(choice.lstrip("-").isdigit() for choice in choices):
        first, last, step = int(choices[0]), int(choices[-1]), abs(int(value.step))
        low, high = min(first, last), max(first, last)
        return lambda trial: trial.suggest_int(key, low, high, step=step)
    values = {_number(without_escapes(choice)): choice for choice in choices}

    def suggested(trial: optuna.Trial) -> Any:
        value = trial.suggest_categorical(key, list(values))
        return values[value] if isinstance(value, str) else value

    return suggested


def _number(text: str) -> int | float | str:
    """``text`` as a number, if it is one."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            number = kind(text)
            return number if math.isfinite(number) else text
    return text
