"""From Hydra's configuration to plain dataclasses."""

from __future__ import annotations

import contextlib
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
from omegaconf import DictConfig, OmegaConf
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
_HYDRA = threading.RLock()  # all threads share Hydra's state


@contextlib.contextmanager
def own_hydra() -> Iterator[None]:
    """Use Hydra with ``conf/`` in the block, and restore the state of Hydra afterwards."""
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
    """Arguments with values as the user means them: ``1.10`` in quotes if the option takes text, which Hydra would turn
    into a number; ``1000000`` for ``1e6`` if the option takes a whole number."""
    kinds = schemas.kinds() | {key: {str} for key in ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir")}

    def one(argument: str) -> str:
        key, equals, value = argument.partition("=")
        takes = kinds.get(key.lstrip("+"), set[Any]()) - {type(None)}
        if takes == {str} and not _QUOTED.search(value):
            return key + equals + _LITERAL.sub(r"\1'\2'", value)
        return f"{key}{equals}{_LITERAL.sub(_as_whole, value)}" if takes == {int} else argument

    return [one(argument) for argument in arguments]


# Numbers and truth values that are elements of a value, and the start of values whose elements must not be quoted.
_LITERAL = re.compile(
    r"((?:^|[,(])\s*)([+-]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:e[+-]?\d+)?|true|false|nan|inf)(?=\s*(?:[,)]|$))", re.I
)
_QUOTED = re.compile(r"['\"\[{]|(?:range|interval|glob)\(")


def _as_whole(literal: re.Match[str]) -> str:
    with contextlib.suppress(ValueError):
        if "e" in literal[2].lower() and float(literal[2]).is_integer():
            return f"{literal[1]}{int(float(literal[2]))}"
    return literal[0]


def from_hydra(cfg: DictConfig) -> RunConfig:
    """Turn a composed configuration into checked, frozen dataclasses.

    Values that a rule chooses are written into ``cfg`` too, so that a resumed run has the same values.

    Raises:
        ConfigError: an option is unknown, or a value is missing, out of range, or at odds with another.
    """
    run = _chosen_by_rule(cfg)
    check(run)
    return run


def _typed(cfg: DictConfig) -> RunConfig:
    plain = cast("dict[str, Any]", OmegaConf.to_container(cfg))  # without the types it was composed with
    plain.pop("hydra", None)
    for name, group in GROUPS.items():
        if group.fallback and isinstance(plain.get(name), dict) and plain[name].get("name") in (None, "???"):
            plain[name]["name"] = group.fallback  # a user's option file need not have this label
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

    These are the backend, the precision, the compilation, the mode of W&B, the numbers of environments and actors, and
    the crop.
    """
    run = _typed(cfg)
    check_values(run, only=("device",))  # the rules below use the device
    if run.backend.name == "auto":
        cfg.backend = schemas.writable(auto.choose(run))
    if run.execution.precision == "auto":
        cfg.execution.precision = machine.best_precision(run.device)
    if run.execution.compile is None:
        cfg.execution.compile = machine.pick_device(run.device).type == "cpu" and bool(machine.compilers("cpu"))
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
        check(run)  # before the game is played
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
    """The keys whose values in ``run`` differ from its rung; the keys in ``overrides`` if the rung has no file here."""
    rung = _rung(run)
    return changes.keys_of(overrides) if rung is None else changes.differences(run, rung)


def _rung(run: RunConfig) -> RunConfig | None:
    """The rung of ``run``, with the values that rules chose for it; ``None`` if it cannot be composed."""
    begun = GlobalHydra.instance().is_initialized()  # then the command line may have named more folders of files
    try:
        with contextlib.nullcontext() if begun else own_hydra():
            loader = GlobalHydra.instance().config_loader()
            cfg = loader.load_configuration("config", [f"experiment={run.experiment.name}"], RunMode.RUN)
            if cfg.backend.name == "auto":
                cfg.backend = schemas.writable(type(run.backend)(run.backend.name))
            ruled: dict[str, Any] = {"wrappers.crop": [], "execution.precision": "auto", "execution.compile": None}
            for key, by_rule in ruled.items():
                if OmegaConf.select(cfg, key) == by_rule:
                    OmegaConf.update(cfg, key, OmegaConf.select(OmegaConf.structured(run), key), merge=False)
            return from_hydra(cfg)
    except (ConfigError, HydraException, OmegaConfBaseException):  # the last if a value must come from the command line
        return None


plugins.load()
config_store.fill()
