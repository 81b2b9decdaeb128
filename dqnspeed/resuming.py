"""``resume=FOLDER``: which run is to go on, with which configuration, from which checkpoint."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from dqnspeed import checkpoint, compose
from dqnspeed.claim import claimed
from dqnspeed.cli import check_run
from dqnspeed.compose import CONF_DIR
from dqnspeed.config import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.options import ConfigError

PREFIX = "resume="
# What may be set anew without making it another run; the rest is part of what was begun.
CHANGEABLE = (
    "stop.", "eval.", "tracking.", "checkpoint.", "optimizer.lr", "algo.max_grad_norm", "device", "execution.threads",
    "parallelism.timeout_s", "parallelism.env_threads",
)  # fmt: skip


@dataclass(frozen=True)
class Resumption:
    """A run that is to go on."""

    folder: Path
    run: RunConfig
    spec: EnvSpec
    plain: dict[str, Any]
    group: str | None
    overrides: list[str]  # from its start to now


def asked_for(arguments: Sequence[str]) -> bool:
    return any(argument.startswith(PREFIX) for argument in arguments)


def prepare(arguments: Sequence[str]) -> Resumption:
    """Read and check the run that the command line names; what it changes is kept for the next time.

    Raises:
        ConfigError: there is no such run, it is finished or still running, or it may not be changed in this way.
    """
    folder = _folder(arguments)
    overrides = [argument for argument in arguments if not argument.startswith(PREFIX)]
    cfg = _configuration(folder, overrides)
    run = compose.from_hydra(cfg)
    _check_unfinished(run, folder)
    spec = check_run(run)
    with claimed(folder, resumed=True):
        begun_with = _begun_with(folder) + _earlier(folder)
        if overrides:
            _keep([*_earlier(folder), *overrides], folder)
    plain = cast("dict[str, Any]", OmegaConf.to_container(cfg, resolve=True))
    group = str(folder.parent) if (folder.parent / "multirun.yaml").exists() else None
    return Resumption(folder, run, spec, plain, group, [*begun_with, *overrides])


def load_run(folder: Path) -> DictConfig:
    """The configuration of the run in ``folder``, as it was composed.

    Raises:
        ConfigError: there is no run.
    """
    path = folder / ".hydra" / "config.yaml"
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder.")
    if (folder / "multirun.yaml").exists():
        raise ConfigError(f"{folder}: is a sweep; name the folder of one of its runs, such as {folder / '0'}.")
    if not path.exists():
        raise ConfigError(f"{folder}: holds no run (no .hydra/config.yaml).")
    with hydra.initialize_config_dir(CONF_DIR, version_base="1.3"):
        defaults = hydra.compose("config")  # for options that are newer than the run
    return cast("DictConfig", OmegaConf.merge(defaults, OmegaConf.load(path)))


def advice(folder: Path) -> str:
    """The command that goes on with the run in ``folder``, where it left something to go on from."""
    if not checkpoint.candidates(folder / "checkpoints"):
        return "No checkpoint was saved to go on from."
    return f"To go on: python -m dqnspeed.train {shlex.quote(f'{PREFIX}{folder}')}"


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
    OmegaConf.resolve(cfg.exploration)  # epsilon falls as it was begun to, whatever becomes of stop.max_steps
    known = compose.keys()
    for override in OverridesParser.create().parse_overrides([*_earlier(folder), *overrides]):
        key = override.key_or_group
        if override.is_sweep_override():
            raise ConfigError(f"{override.input_line}: a run goes on with one value, not with a sweep.")
        if not key.startswith(CHANGEABLE) or key not in known or str(override.input_line).startswith(("+", "~")):
            raise ConfigError(f"{key}: is no option that a resumed run can change; {', '.join(CHANGEABLE)} are.")
        OmegaConf.update(cfg, key, override.value())
    return cfg


def _earlier(folder: Path) -> list[str]:
    """Overrides that this run was resumed with before."""
    return _lines(folder / ".hydra" / "resumed.yaml")


def _begun_with(folder: Path) -> list[str]:
    """Overrides that this run was begun with; a damaged file of them costs it no more than its full name."""
    try:
        return _lines(folder / ".hydra" / "overrides.yaml")
    except Exception:  # whatever a YAML parser raises
        return []


def _lines(path: Path) -> list[str]:
    return [str(line) for line in OmegaConf.load(path)] if path.exists() else []


def _keep(overrides: list[str], folder: Path) -> None:
    path = folder / ".hydra" / "resumed.yaml"
    partial = path.with_suffix(".partial")
    try:
        partial.write_text(OmegaConf.to_yaml(OmegaConf.create(overrides)))
        os.replace(partial, path)
    except OSError as error:
        raise ConfigError(f"resume={folder}: {path} cannot be written ({error.strerror}).") from error


def _check_unfinished(run: RunConfig, folder: Path) -> None:
    try:
        summary = json.loads((folder / "summary.json").read_text())
    except (OSError, ValueError):
        return  # killed before it could write one
    stop, reason = run.stop, summary["stopped_by"]
    reached = {
        "reward_bound": (stop.reward_bound, summary["reward_bound"]),
        "max_steps": (stop.max_steps, summary["agent_steps"]),
        "max_minutes": (stop.max_minutes, summary["wall_time_s"] / 60),
    }
    bound, value = reached.get(reason, (None, None))
    if bound is not None and value is not None and value >= bound:
        raise ConfigError(
            f"resume={folder}: this run is finished (stop.{reason}={bound:g} was reached after "
            f"{summary['agent_steps']:,} agent steps); raise stop.{reason} to go on."
        )
