"""From Hydra's configuration to plain dataclasses."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, cast

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from dqnspeed.cli import plugins, store
from dqnspeed.cli.schemas import CONF_DIR, default_options, keys_of, schema, unknown
from dqnspeed.config import changes
from dqnspeed.config.combinations import check
from dqnspeed.config.options import ConfigError
from dqnspeed.config.registry import GROUPS
from dqnspeed.config.schema import RunConfig


def from_hydra(cfg: DictConfig) -> RunConfig:
    """Turn a composed configuration into plain frozen dataclasses, checked.

    Raises:
        ConfigError: an option is unknown, or a value missing, out of range, or at odds with another.
    """
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
    check(run)
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
    rung = _rung(run.experiment.name)
    return changes.keys_of(overrides) if rung is None else changes.differences(run, rung)


def _rung(name: str) -> RunConfig | None:
    overrides = [f"experiment={name}"]
    try:
        if GlobalHydra.instance().is_initialized():
            loader = GlobalHydra.instance().config_loader()
            return from_hydra(loader.load_configuration("config", overrides, RunMode.RUN))
        with hydra.initialize_config_dir(CONF_DIR, version_base="1.3"):
            return from_hydra(hydra.compose("config", overrides=overrides))
    except (ConfigError, HydraException):
        return None


plugins.load()
store.fill()
