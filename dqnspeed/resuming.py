"""``resume=FOLDER``: which run is to go on, with which configuration, from which checkpoint."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from dqnspeed import checkpoint, config
from dqnspeed.checkpoint import DamagedError, State
from dqnspeed.config import CONF_DIR, RunConfig
from dqnspeed.options import ConfigError

log = logging.getLogger(__name__)

PREFIX = "resume="
# What may be set anew without making it another run; the rest is part of what was begun.
CHANGEABLE = (
    "stop.", "eval.", "tracking.", "checkpoint.", "optimizer.lr", "algo.max_grad_norm", "device", "execution.threads",
    "parallelism.timeout_s", "parallelism.env_threads",
)  # fmt: skip


@dataclass(frozen=True)
class Resumption:
    """A run that is to go on; ``state`` is empty where it was killed before its first checkpoint."""

    folder: Path
    run: RunConfig
    plain: dict[str, Any]
    state: State
    group: str | None


def asked_for(arguments: Sequence[str]) -> bool:
    return any(argument.startswith(PREFIX) for argument in arguments)


def prepare(arguments: Sequence[str]) -> Resumption:
    """Read the run that the command line names.

    Raises:
        ConfigError: there is no such run, it is finished, or it may not be changed in this way.
    """
    folder = _folder(arguments)
    overrides = [argument for argument in arguments if not argument.startswith(PREFIX)]
    cfg = _configuration(folder, overrides)
    run = config.from_hydra(cfg)
    _check_unfinished(run, folder)
    state = _state(folder)
    if overrides:
        kept = folder / ".hydra" / "resumed.yaml"
        kept.write_text(OmegaConf.to_yaml(OmegaConf.create([*_earlier(folder), *overrides])))
    plain = cast("dict[str, Any]", OmegaConf.to_container(cfg, resolve=True))
    group = str(folder.parent) if (folder.parent / "multirun.yaml").exists() else None
    return Resumption(folder, run, plain, state, group)


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
    with initialize_config_dir(CONF_DIR, version_base="1.3"):
        defaults = compose("config")  # for options that are newer than the run
    return cast("DictConfig", OmegaConf.merge(defaults, OmegaConf.load(path)))


def line(folder: Path) -> str:
    """The command that goes on with the run in ``folder``."""
    return f"python -m dqnspeed.train {PREFIX}{folder}"


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
    known = config.keys()
    for override in OverridesParser.create().parse_overrides([*_earlier(folder), *overrides]):
        key = override.key_or_group
        if not key.startswith(CHANGEABLE) or key not in known or str(override.input_line).startswith(("+", "~")):
            raise ConfigError(f"{key}: is no option that a resumed run can change; {', '.join(CHANGEABLE)} are.")
        OmegaConf.update(cfg, key, override.value())
    return cfg


def _earlier(folder: Path) -> list[str]:
    """Overrides that this run was resumed with before."""
    path = folder / ".hydra" / "resumed.yaml"
    return [str(line) for line in OmegaConf.load(path)] if path.exists() else []


def _check_unfinished(run: RunConfig, folder: Path) -> None:
    try:
        summary = json.loads((folder / "summary.json").read_text())
    except (OSError, ValueError):
        return  # killed before it could write one
    stop, reason = run.stop, summary["stopped_by"]
    mean = summary["eval_return_mean"] if stop.on == "eval" else summary["return_mean_100"]
    reached = {
        "reward_bound": (stop.reward_bound, mean),
        "max_steps": (stop.max_steps, summary["agent_steps"]),
        "max_minutes": (stop.max_minutes, summary["wall_time_s"] / 60),
    }
    bound, value = reached.get(reason, (None, None))
    if bound is not None and value is not None and value >= bound:
        raise ConfigError(
            f"resume={folder}: this run is finished (stop.{reason}={bound:g} was reached after "
            f"{summary['agent_steps']:,} agent steps); raise stop.{reason} to go on."
        )


def _state(folder: Path) -> State:
    try:
        found = checkpoint.newest(folder / "checkpoints")
    except DamagedError as error:
        raise ConfigError(f"resume={folder}: no checkpoint can be read; {error}") from error
    if found is None:
        log.warning("%s was ended before its first checkpoint, so it begins again from its first step.", folder)
        return {}
    path, state = found
    log.info("Going on from %s, agent step %s.", path, f"{state['progress']['agent_steps']:,}")
    return state
