"""``resume=FOLDER``: find a run, read its configuration and check that it can be resumed."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from dqnspeed.cli import compose, plugins, schemas, trust
from dqnspeed.cli.preflight import check_run
from dqnspeed.config.options import ConfigError
from dqnspeed.config.registry import GROUPS
from dqnspeed.config.schema import RunConfig
from dqnspeed.system import messages
from dqnspeed.tracking.published import folder_at, is_published
from dqnspeed.tracking.run_folder import (
    CHECKPOINTS,
    CONFIG,
    SWEEP,
    DamagedError,
    group_of,
    looking_into,
    read_config,
    read_overrides,
    read_summary,
    sweep_above,
)
from dqnspeed.training import checkpoint
from dqnspeed.training.request import RunRequest

log = logging.getLogger(__name__)

PREFIX = "resume="
# Keys that may change in a resumed run, beside options with ``changeable=True``.
CHANGEABLE = (
    "stop.", "eval.", "tracking.", "checkpoint.", "live", "optimizer.lr", "algo.max_grad_norm", "device", "backend.",
    "execution.threads", "execution.keep_memory", "execution.graph", "execution.precision",
    "replay.device", "parallelism.timeout_s", "parallelism.restart_actors",
)  # fmt: skip
FIXED = "backend.name"  # another backend cannot continue the games


def changeable() -> tuple[str, ...]:
    """Prefixes of the keys that may change in a resumed run."""
    options = [(group, option) for group, known in GROUPS.items() for option in known.options.values()]
    found = (f"{group}.{f.name}" for group, option in options for f in fields(option) if f.metadata["changeable"])
    return (*CHANGEABLE, *dict.fromkeys(found))


def asked_for(arguments: Sequence[str]) -> bool:
    return any(argument.startswith(PREFIX) for argument in arguments)


def prepare(arguments: Sequence[str], typed: Sequence[str] = ()) -> RunRequest:
    """Read and check the run in ``arguments``.

    Args:
        arguments: ``resume=FOLDER`` and overrides.
        typed: more overrides whose code may be imported.

    Returns:
        The request to resume the run, without a label.

    Raises:
        ConfigError: there is no such run, it is finished, a key may not be changed, or its files name code that may not
            be imported.
    """
    trusted, arguments = trust.take(arguments)
    folder = _folder(arguments)
    if is_published(folder_at(str(folder))):
        raise ConfigError(f"{PREFIX}{folder}: is a published agent, which has no state to resume. Use init={folder}.")
    overrides = compose.as_meant([argument for argument in arguments if not argument.startswith(PREFIX)])
    cfg = _configuration(folder, overrides)
    trust.check_code(plain_of(cfg), folder, trusted, [*overrides, *typed])
    run, plain = compose.from_hydra(cfg), plain_of(cfg)
    _check_unfinished(run, folder)
    above = sweep_above(folder.resolve())
    group = None if above is None else group_of(above)
    return RunRequest(
        run, check_run(run), folder, plain, group=group, overrides=[*read_overrides(folder), *overrides], resume=True
    )


def load_run(folder: Path) -> DictConfig:
    """The configuration of the run in ``folder``, as it was started or last resumed.

    Raises:
        ConfigError: there is no run, every copy of its configuration is damaged, or this version has other options.
    """
    with looking_into(folder):
        if not folder.is_dir():
            raise ConfigError(f"{folder}: there is no such folder.")
        if (folder / SWEEP).exists():
            raise ConfigError(f"{folder}: is a sweep; name the folder of one of its runs, such as {folder / '0'}.")
    if plain := read_config(folder):
        return of_copy(plain, folder)
    found = checkpoint.newest_config(folder / CHECKPOINTS)
    if found is None:
        raise ConfigError(f"{folder}: holds no run (no {CONFIG} that can be read).")
    log.warning("%s: cannot be read; the configuration in %s is used.", folder / CONFIG, found[0])
    return of_copy(found[1], folder)


def of_copy(plain: Mapping[str, Any], source: Path) -> DictConfig:
    """The configuration ``plain``, read from ``source``.

    Raises:
        ConfigError: this version has other options, or a value refers to others, which could take forever to compute.
    """
    if "${" in json.dumps(plain):
        raise ConfigError(f"{source}: its configuration refers to other values (${{...}}), but a run saves values.")
    cfg = OmegaConf.create(dict(plain))
    _check_options(cfg, source)
    return cfg


def _check_options(cfg: DictConfig, folder: Path) -> None:
    """Raise :class:`ConfigError` if this version has other options than the stored configuration."""
    for group, known in GROUPS.items():
        name = OmegaConf.select(cfg, f"{group}.name")
        if name is None or name in known.options:
            continue
        if known.fallback is None or set(cfg[group]) - {f.name for f in fields(known.options[known.fallback])}:
            raise ConfigError(
                f"{group}={name}: the plugin with this option of the run is not here; install it, or name its module "
                f"in {plugins.VARIABLE}."
            )
    there = {*schemas.keys_of(cfg)}
    has_groups = all(f"{group}.name" in there for group in GROUPS)
    root = schemas.schema(cfg if has_groups else None)
    differing = [f"no option {key}" for key in sorted(OmegaConf.missing_keys(root) - there)]
    differing += [f"the option {key}, which is unknown here" for key in sorted(there - {*schemas.keys_of(root)})]
    if differing:
        raise ConfigError(
            f"{folder}: its configuration has {differing[0]}; another version of dqnspeed wrote it, so start a new run."
        )


def plain_of(cfg: DictConfig) -> dict[str, Any]:
    """The configuration as nested dicts."""
    return cast("dict[str, Any]", OmegaConf.to_container(cfg, resolve=True))


def advice(folder: Path) -> str:
    """A sentence with the command that resumes the run in ``folder``, if there is a checkpoint."""
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


def _check_unfinished(run: RunConfig, folder: Path) -> None:
    try:
        summary, stop = read_summary(folder), run.stop
        reason = summary["stopped_by"]
        reached = {
            "reward_bound": (stop.reward_bound, summary["reward_bound"]),
            "max_steps": (stop.max_steps, summary["agent_steps"]),
            "max_minutes": (stop.max_minutes, summary["wall_time_s"] / 60),
        }
    except (DamagedError, KeyError, TypeError):
        return  # no summary, because the run was killed, or a damaged one
    bound, value = reached.get(reason, (None, None))
    if bound is not None and value is not None and value >= bound:
        raise ConfigError(
            f"resume={folder}: this run is finished (stop.{reason}={bound:g} was reached after "
            f"{summary['agent_steps']:,} agent steps); raise stop.{reason} to resume."
        )
