"""From Hydra's configuration to plain dataclasses."""

from __future__ import annotations

import contextlib
import copy
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobRuntime
from hydra.errors import HydraException
from hydra.types import RunMode
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.basecontainer import BaseContainer
from omegaconf.errors import OmegaConfBaseException

from dqnspeed import envs
from dqnspeed.cli import config_store, plugins, schemas
from dqnspeed.cli.schemas import CONF_DIR, default_options, keys_of, schema, unknown
from dqnspeed.config import changes
from dqnspeed.config.combinations import check
from dqnspeed.config.options import ConfigError, check_values
from dqnspeed.config.registry import GROUPS
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs.backends import auto
from dqnspeed.execution.threads import by_rule
from dqnspeed.system import machine
from dqnspeed.system.startup import startup
from dqnspeed.tracking.wandb import mode_of_environment

_OWN = GlobalHydra, HydraConfig, JobRuntime, VersionBase
_HYDRA = threading.RLock()  # Hydra's state is that of the whole process


@contextlib.contextmanager
def own_hydra() -> Iterator[None]:
    """Hydra over ``conf/`` inside the block, whatever this process uses Hydra for; that is as before afterwards."""
    with _HYDRA:
        instances, resolvers = Singleton._instances, BaseContainer._resolvers
        shared = {kind: one for kind, one in instances.items() if kind not in _OWN}
        Singleton._instances, BaseContainer._resolvers = shared, dict(resolvers)
        try:
            config_store.add_resolvers(replace=True)
            with hydra.initialize_config_dir(CONF_DIR, version_base="1.3"):
                yield
        finally:
            Singleton._instances, BaseContainer._resolvers = instances, resolvers


def as_meant(arguments: Sequence[str]) -> list[str]:
    """Arguments for Hydra: where an option takes text, ``1.10`` in quotes, since Hydra would make a number of it; where
    it takes a whole number, ``1000000`` for ``1e6``."""
    kinds = schemas.kinds() | {key: {str} for key in ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir")}

    def one(argument: str) -> str:
        key, equals, value = argument.partition("=")
        takes = kinds.get(key.lstrip("+"), set[Any]()) - {type(None)}
        if takes == {str} and not _QUOTED.search(value):
            return f"{key}{equals}{_LITERAL.sub(_in_quotes, value)}"
        return f"{key}{equals}{_LITERAL.sub(_as_whole, value)}" if takes == {int} else argument

    return [one(argument) for argument in arguments]


# Numbers and truth values among the elements of a value; and what elements may stand in that are not to be quoted.
_LITERAL = re.compile(
    r"(?<![^,(\s])(?:[+-]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:e[+-]?\d+)?|true|false|nan|inf)(?![^,)\s])", re.I
)
_QUOTED = re.compile(r"['\"\[{]|(?:range|interval|glob)\(")


def _in_quotes(literal: re.Match[str]) -> str:
    return f"'{literal[0]}'"


def _as_whole(literal: re.Match[str]) -> str:
    with contextlib.suppress(ValueError):
        if "e" in literal[0].lower() and float(literal[0]).is_integer():
            return str(int(float(literal[0])))
    return literal[0]


def from_hydra(cfg: DictConfig) -> RunConfig:
    """Turn a composed configuration into plain frozen dataclasses, checked; numbers that are left to a rule are written
    into ``cfg`` too, so that a run is resumed with those it was begun with.

    Raises:
        ConfigError: an option is unknown, or a value missing, out of range, or at odds with another.
    """
    run = _chosen_by_rule(cfg)
    check(run)
    return run


def _typed(cfg: DictConfig) -> RunConfig:
    own = copy.copy(cfg)
    with open_dict(own):
        own.pop("hydra", None)
    plain = cast("dict[str, Any]", OmegaConf.to_container(own))  # without the types it was composed with
    for name, group in GROUPS.items():
        if group.fallback and isinstance(plain.get(name), dict) and plain[name].get("name") in (None, "???"):
            plain[name]["name"] = group.fallback  # a label, which an option file of the user's need not have
    own = OmegaConf.create(plain)
    root = schema(own)
    known = keys_of(root)
    for key in keys_of(own):
        if key not in known:
            raise ConfigError(_refused(key, plain))
    run = OmegaConf.to_object(OmegaConf.merge(root, own))
    assert isinstance(run, RunConfig)
    return run


def _chosen_by_rule(cfg: DictConfig) -> RunConfig:
    """Write into ``cfg`` the values that it leaves to a rule or to this machine, and return the configuration.

    These are the backend, the precision, the mode of W&B, the numbers of environments and actors, and the crop.
    """
    run = _typed(cfg)
    check_values(run, only=("device",))  # which is asked below
    if run.backend.name == "auto":
        cfg.backend = schemas.writable(auto.choose(run))
    if run.execution.precision == "auto":
        cfg.execution.precision = machine.best_precision(run.device)
    if run.tracking.wandb == "auto":
        cfg.tracking.wandb = mode_of_environment() or "offline"
    run = _typed(cfg)
    if 0 in (run.num_envs, run.parallelism.num_actors):
        ruled = by_rule(run, machine.cores())
        cfg.num_envs, cfg.parallelism.num_actors = ruled.num_envs, ruled.parallelism.num_actors
        run = _typed(cfg)
    if run.wrappers.crop == []:
        cfg.wrappers.crop = None
        run = _typed(cfg)
        check(run)  # before it is played
        with startup.within("random_play"):
            part = envs.find_crop(run)
        if part is not None:
            cfg.wrappers.crop = list(part)
            run = _typed(cfg)
    return run


def _refused(key: str, plain: dict[str, Any]) -> str:
    group, _, leaf = key.partition(".")
    if group not in GROUPS:
        return f"{key}: {unknown(key)}."
    rung = (plain.get("experiment") or {}).get("name")
    source = "" if rung in (None, default_options()["experiment"]) else f" (experiment={rung} may bring it)"
    return f"{key}={plain[group][leaf]}{source}: {unknown(key, plain[group].get('name'))}."


def changed(run: RunConfig, overrides: Iterable[str]) -> set[str]:
    """The keys that ``run`` gives other values than its rung does; those that ``overrides`` name where the file of the
    rung is not to be found, as that of a user's own when a run is resumed."""
    rung = _rung(run.experiment.name, run)
    return changes.keys_of(overrides) if rung is None else changes.differences(run, rung)


def _rung(name: str, run: RunConfig) -> RunConfig | None:
    """The rung of this name, and what a rule chooses by the game as it chose for ``run``."""
    begun = GlobalHydra.instance().is_initialized()  # by the command line, which may name more folders to search
    try:
        with contextlib.nullcontext() if begun else own_hydra():
            loader = GlobalHydra.instance().config_loader()
            cfg = loader.load_configuration("config", [f"experiment={name}"], RunMode.RUN)
            if cfg.backend.name == "auto":
                cfg.backend = schemas.writable(type(run.backend)(run.backend.name))
            ruled = {"wrappers.crop": [], "execution.precision": "auto"}
            for key, by_rule in ruled.items():
                if OmegaConf.select(cfg, key) == by_rule:
                    OmegaConf.update(cfg, key, OmegaConf.select(OmegaConf.structured(run), key), merge=False)
            return from_hydra(cfg)
    except (ConfigError, HydraException, OmegaConfBaseException):  # the last: a value may be left to the command line
        return None


plugins.load()
config_store.fill()
