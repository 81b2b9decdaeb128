"""``resume=FOLDER``: the run to resume, its configuration and its checkpoint."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, ListConfig, OmegaConf

from dqnspeed.cli import compose, plugins, schemas, trust
from dqnspeed.cli.preflight import check_run
from dqnspeed.cli.sweep_record import quoted
from dqnspeed.config.options import ConfigError
from dqnspeed.config.registry import GROUPS
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.system import atomic, messages, signing
from dqnspeed.tracking.run_folder import (
    CHECKPOINTS,
    CONFIG,
    HYDRA,
    HYDRA_CONFIG,
    HYDRA_OVERRIDES,
    RESUMED,
    SWEEP,
    DamagedError,
    flat,
    group_of,
    looking_into,
    read_summary,
    read_yaml,
    sweep_above,
)
from dqnspeed.training import checkpoint
from dqnspeed.training.folder_lock import locked_folder

log = logging.getLogger(__name__)

PREFIX = "resume="
LAST_KEY = "device"  # the last key of a whole configuration
# Keys that may change without making it another run, beside the changeable options of plugins and actors.
CHANGEABLE = (
    "stop.", "eval.", "tracking.", "checkpoint.", "optimizer.lr", "algo.max_grad_norm", "device", "backend.",
    "execution.threads", "execution.keep_memory", "execution.graph", "execution.precision",
    "replay.device", "parallelism.timeout_s", "parallelism.restart_actors",
)  # fmt: skip
FIXED = "backend.name"  # games of one backend cannot continue in another


def changeable() -> tuple[str, ...]:
    """Prefixes of the keys that may change in a resumed run."""
    options = [(group, option) for group, known in GROUPS.items() for option in known.options.values()]
    found = (f"{group}.{f.name}" for group, option in options for f in fields(option) if f.metadata["changeable"])
    return (*CHANGEABLE, *dict.fromkeys(found))


@dataclass(frozen=True)
class Resumption:
    """A run to resume."""

    folder: Path
    run: RunConfig
    spec: EnvSpec
    plain: dict[str, Any]
    group: str | None
    overrides: list[str]  # from its start to now
    changes: list[str]  # those of now

    def remember(self) -> None:
        """Save what is changed now for the next time; raises :class:`ConfigError` if it cannot be written."""
        if self.changes:
            _save_overrides(self.changes, self.plain, self.folder)


def asked_for(arguments: Sequence[str]) -> bool:
    return any(argument.startswith(PREFIX) for argument in arguments)


def prepare(arguments: Sequence[str], typed: Sequence[str] = ()) -> Resumption:
    """Read and check the run that the command line names.

    Args:
        typed: more overrides whose code may be imported.

    Raises:
        ConfigError: there is no such run, it is finished or still running, an override may not be changed, or its files
            name code that may not be imported.
    """
    trusted, arguments = trust.take(arguments)
    folder = _folder(arguments)
    overrides = compose.as_meant([argument for argument in arguments if not argument.startswith(PREFIX)])
    cfg = _configuration(folder, overrides)
    _check_is_its_own(folder, plain_of(cfg))
    trust.check_code(plain_of(cfg), folder, trusted, [*overrides, *typed])
    run, plain = compose.from_hydra(cfg), plain_of(cfg)
    _check_unfinished(run, folder)
    spec = check_run(run)
    with locked_folder(folder, resumed=True):
        earlier = _earlier_overrides(folder)
    above = sweep_above(folder.resolve())
    group = None if above is None else group_of(above)
    return Resumption(folder, run, spec, plain, group, [*earlier, *overrides], overrides)


def load_run(folder: Path) -> DictConfig:
    """The configuration of the run in ``folder``, with the overrides of earlier resumes.

    It is read from Hydra's files. The copies in ``config.json`` and in every checkpoint are written atomically, so they
    are preferred if they differ.

    Raises:
        ConfigError: there is no run, or every copy of its configuration is damaged, or it has other options than there
            are here.
    """
    with looking_into(folder):
        if not folder.is_dir():
            raise ConfigError(f"{folder}: there is no such folder.")
        if (folder / SWEEP).exists():
            raise ConfigError(f"{folder}: is a sweep; name the folder of one of its runs, such as {folder / '0'}.")
        found = _own_copy(folder)
        if found is None and not (folder / HYDRA_CONFIG).exists():
            raise ConfigError(f"{folder}: holds no run (no {HYDRA_CONFIG}).")
    try:
        cfg = _composed(folder, {} if found is None else flat(found[1]))
        if found is None or not (differing := _differing(plain_of(cfg), found[1])):
            return cfg
        problem = f"{HYDRA} is not what the run was started with ({differing[0]})"
    except _DamagedConfigError as error:
        if found is None:
            raise ConfigError(f"{folder}: {error}, and there is no other copy of the run's configuration.") from error
        problem = str(error)
    log.warning("%s: %s; what %s says is taken.", folder, problem, found[0])
    return of_copy(found[1], folder)


def of_copy(plain: Mapping[str, Any], source: Path) -> DictConfig:
    """The configuration that ``source`` holds as plain data.

    Raises:
        ConfigError: it has other options than there are here, or refers to other values, which take no end to compute
            where somebody wants that.
    """
    if "${" in json.dumps(plain):
        raise ConfigError(f"{source}: its configuration refers to other values (${{...}}), as none that a run keeps.")
    cfg = OmegaConf.create(dict(plain))
    _check_options(cfg, source)
    return cfg


class _DamagedConfigError(Exception):
    """A file of Hydra's is empty, truncated or changed; the message names it."""


def _check_options(cfg: DictConfig, folder: Path) -> None:
    """Raise :class:`ConfigError` if the stored configuration has other options than there are here."""
    for group, known in GROUPS.items():
        name = OmegaConf.select(cfg, f"{group}.name")
        if name is None or name in known.options:
            continue
        if known.fallback is None or set(cfg[group]) - {f.name for f in fields(known.options[known.fallback])}:
            raise ConfigError(
                f"{group}={name}: the run was begun with this option of a plugin that is not here; install it, or name "
                f"its module in {plugins.VARIABLE}."
            )
    there, root = {*schemas.keys_of(cfg)}, schemas.schema()
    missing = OmegaConf.missing_keys(root) - there
    if not missing:
        root = schemas.schema(cfg)
        missing = OmegaConf.missing_keys(root) - there
    differing = [f"no option {key}" for key in sorted(missing)]
    differing += [f"the option {key}, which is unknown here" for key in sorted(there - {*schemas.keys_of(root)})]
    if differing:
        raise ConfigError(
            f"{folder}: its configuration has {differing[0]}; it was written by another version of dqnspeed, so start "
            f"it anew."
        )


def _fill_in(cfg: DictConfig, begun_with: Mapping[str, Any]) -> None:
    """Where ``cfg`` leaves something to a rule, what the rule chose when the run began, or was resumed."""
    if OmegaConf.select(cfg, "backend.name") == "auto" and "backend.name" in begun_with:
        chosen = {key: value for key, value in begun_with.items() if key.startswith("backend.")}
        cfg.backend = {key.removeprefix("backend."): value for key, value in chosen.items()}
    for key, left in compose.BY_RULE.items():
        if OmegaConf.select(cfg, key) == left and key in begun_with:
            OmegaConf.update(cfg, key, begun_with[key])


def _composed(folder: Path, begun_with: Mapping[str, Any]) -> DictConfig:
    """The configuration in the files of ``.hydra``; where that of a sweep's job leaves something to a rule, what it was
    ``begun_with``.

    Raises:
        _DamagedConfigError: one of them is damaged.
    """
    name = HYDRA_CONFIG
    try:
        text = read_yaml(folder / name)
        stored = OmegaConf.create(text)
        # A file that was cut between two lines is still valid YAML.
        if not isinstance(stored, DictConfig) or LAST_KEY not in stored or not text.endswith("\n"):
            raise _DamagedConfigError(f"{name} is empty or cut short")
        _check_options(stored, folder)
        _fill_in(stored, begun_with)
        OmegaConf.resolve(stored)  # a value that refers to another stays as it began
        name = RESUMED
        for override in OverridesParser.create().parse_overrides(_resumed_with(folder)):
            OmegaConf.update(stored, override.key_or_group, override.value())
        _fill_in(stored, begun_with)
        plain_of(stored)
    except (_DamagedConfigError, ConfigError):
        raise
    except Exception as error:  # the libraries raise many errors at broken YAML
        raise _DamagedConfigError(f"{name} cannot be read ({type(error).__name__})") from error
    return stored


def _own_copy(folder: Path) -> tuple[str, dict[str, Any]] | None:
    """The name of a whole copy of the configuration, and the copy: ``config.json``, else the newest checkpoint."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        copy = json.loads((folder / CONFIG).read_text())
        if isinstance(copy, dict) and LAST_KEY in copy:
            return CONFIG, copy
    found = checkpoint.newest_config(folder / CHECKPOINTS)
    return found and (f"{CHECKPOINTS}/{found[0].name}", found[1])


def plain_of(cfg: DictConfig) -> dict[str, Any]:
    """The configuration as plain data."""
    return cast("dict[str, Any]", OmegaConf.to_container(cfg, resolve=True))


def _differing(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Options of both that differ, in words."""
    one, other = flat(there), flat(here)
    keys = [key for key in one if key in other and one[key] != other[key]]
    return [f"{key}={one[key]} there, {other[key]} here" for key in keys]


def advice(folder: Path) -> str:
    """The command that resumes the run in ``folder``, if it left a checkpoint."""
    if not checkpoint.candidates(folder / CHECKPOINTS):
        return "No checkpoint was saved to resume from."
    return f"To resume: {messages.command('train', f'{PREFIX}{folder}')}"


def _folder(arguments: Sequence[str]) -> Path:
    named = [argument.removeprefix(PREFIX) for argument in arguments if argument.startswith(PREFIX)]
    flags = [argument for argument in arguments if argument.startswith("-")]
    if flags:
        raise ConfigError(f"{flags[0]}: does not go with resume=, which takes one folder and KEY=VALUE overrides.")
    if len(named) != 1 or not named[0]:
        raise ConfigError("resume: name one folder of a run.")
    return Path(named[0])


def _configuration(folder: Path, overrides: Sequence[str]) -> DictConfig:
    cfg = load_run(folder)
    known = schemas.keys()
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        key = override.key_or_group
        if override.is_sweep_override():
            raise ConfigError(f"{override.input_line}: a run is resumed with one value, not with a sweep.")
        may_change = key.startswith(changeable()) and key != FIXED and key in known
        if not may_change or str(override.input_line).startswith(("+", "~")):
            raise ConfigError(f"{key}: cannot be changed in a resumed run; {', '.join(changeable())} can.")
        OmegaConf.update(cfg, key, override.value())
    return cfg


def _resumed_with(folder: Path) -> list[str]:
    """Overrides of earlier resumes; raises if they cannot be read."""
    return _lines(folder / RESUMED)


def _earlier_overrides(folder: Path) -> list[str]:
    """Overrides of the start and of earlier resumes, for the run's label; none if their files are damaged."""
    with contextlib.suppress(Exception):  # a YAML parser may raise anything
        return [*_lines(folder / HYDRA_OVERRIDES), *_resumed_with(folder)]
    return []


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    lines = OmegaConf.create(read_yaml(path))
    if not isinstance(lines, ListConfig):
        raise _DamagedConfigError(f"{HYDRA}/{path.name} is empty or cut short")
    return [str(line) for line in cast("list[Any]", OmegaConf.to_container(lines))]  # with ${...} unresolved


def _save_overrides(overrides: list[str], plain: Mapping[str, Any], folder: Path) -> None:
    """Save ``overrides`` for the next time, and ``plain``, the configuration with them."""
    path = folder / RESUMED  # first: as long as the other says something else, that counts
    overrides = [_with_its_value(override, flat(plain)) if "${" in override else override for override in overrides]
    try:
        with contextlib.suppress(Exception):  # damaged; ``plain`` includes them
            overrides = [*_resumed_with(folder), *overrides]
        path.parent.mkdir(exist_ok=True)
        atomic.write_text(path, OmegaConf.to_yaml(OmegaConf.create(overrides)))
        path = folder / CONFIG
        signing.write(path, plain)
    except OSError as error:
        raise ConfigError(f"resume={folder}: {path} cannot be written ({error.strerror}).") from error


def _with_its_value(override: str, values: Mapping[str, Any]) -> str:
    """``override`` with the value that its reference has now, since what it refers to may be changed later."""
    key = override.partition("=")[0]
    value = values[key]
    return f"{key}={quoted(value) if isinstance(value, str) else json.dumps(value)}"


def _check_is_its_own(folder: Path, plain: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` if the newest checkpoint is of a run with another configuration."""
    found = checkpoint.newest_config(folder / CHECKPOINTS)
    if found and (differing := foreign(found[1], plain)):
        raise ConfigError(
            f"resume={folder}: {CHECKPOINTS}/{found[0].name} is of another run ({differing[0]}); move it away "
            f"to resume from the one before it."
        )


def foreign(theirs: Mapping[str, Any], plain: Mapping[str, Any]) -> list[str]:
    """Differences between the configurations of a checkpoint and a run that make them different runs, in words."""
    return [pair for pair in _differing(theirs, plain) if not pair.startswith(changeable()) or pair.startswith(FIXED)]


def _is_judged_alike(run: RunConfig, folder: Path) -> bool:
    """Whether the run in ``folder`` has counted as solved by the same mean, as far as is known."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        begun = json.loads((folder / CONFIG).read_text(encoding="utf-8"))["stop"]
        of_more = run.stop.on == "train" and run.stop.window > begun["window"]  # the mean of more games is yet to come
        return bool(run.stop.on == begun["on"] and not of_more)
    return True


def _check_unfinished(run: RunConfig, folder: Path) -> None:
    try:
        summary, stop = read_summary(folder), run.stop
        reason = summary["stopped_by"]
        reached = {
            "reward_bound": (stop.reward_bound if _is_judged_alike(run, folder) else None, summary["reward_bound"]),
            "max_steps": (stop.max_steps, summary["agent_steps"]),
            "max_minutes": (stop.max_minutes, summary["wall_time_s"] / 60),
        }
    except (DamagedError, KeyError, TypeError):
        return  # killed before it wrote one, or damaged
    bound, value = reached.get(reason, (None, None))
    if bound is not None and value is not None and value >= bound:
        raise ConfigError(
            f"resume={folder}: this run is finished (stop.{reason}={bound:g} was reached after "
            f"{summary['agent_steps']:,} agent steps); raise stop.{reason} to resume."
        )
