"""From Hydra's configuration to plain dataclasses: the only module below the entry points that knows OmegaConf."""

from __future__ import annotations

import copy
import math
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from dqnspeed.combinations import check
from dqnspeed.config import RunConfig
from dqnspeed.options import ConfigError

_PACKAGE = Path(__file__).resolve().parent
CONF_DIR = str(_PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent / "conf")


def register() -> None:
    """Give Hydra the schema and the ``${mul:a,b}`` resolver that the YAML files use."""
    OmegaConf.register_new_resolver("mul", lambda *factors: math.prod(factors), replace=True)
    ConfigStore.instance().store(name="schema", node=schema())


def schema() -> DictConfig:
    """The schema as OmegaConf sees it, with every value missing."""
    root = _writable(RunConfig)
    for name, kind in get_type_hints(RunConfig).items():
        if is_dataclass(kind):
            root[name] = _writable(kind)
    root.env.kwargs = {}
    OmegaConf.set_struct(root.env.kwargs, False)  # any keyword an environment of the user's own may take
    return root


def keys() -> list[str]:
    """Every group, scalar and ``group.key`` of the schema."""
    root, found = schema(), list[str]()
    for name in map(str, root):
        node = root._get_node(name)
        found += [name, *(f"{name}.{key}" for key in map(str, node))] if isinstance(node, DictConfig) else [name]
    return found


def _writable(kind: Any) -> DictConfig:
    # OmegaConf makes the node of a frozen dataclass read-only, which would stop Hydra from composing it.
    node: DictConfig = OmegaConf.structured(kind)
    OmegaConf.set_readonly(node, None)
    return node


def from_hydra(cfg: DictConfig) -> RunConfig:
    """Turn a composed configuration into plain frozen dataclasses, checked.

    Raises:
        ConfigError: a value is missing, out of range, or at odds with another.
    """
    own = copy.copy(cfg)
    with open_dict(own):
        own.pop("hydra", None)
    run = OmegaConf.to_object(own)
    assert isinstance(run, RunConfig)
    check(run)
    return run


def rung(name: str) -> RunConfig:
    """``experiment=name`` without another override; the baseline where no such file is (or is no longer)."""
    for experiment in (name, "baseline"):
        overrides = [f"experiment={experiment}"]
        try:
            if GlobalHydra.instance().is_initialized():
                loader = GlobalHydra.instance().config_loader()
                return from_hydra(loader.load_configuration("config", overrides, RunMode.RUN))
            with hydra.initialize_config_dir(CONF_DIR, version_base="1.3"):
                return from_hydra(hydra.compose("config", overrides=overrides))
        except (ConfigError, HydraException):
            continue
    raise AssertionError("the baseline is a rung")


register()
