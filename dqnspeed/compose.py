"""From Hydra's configuration to plain dataclasses: the only module below the entry points that knows OmegaConf."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf, open_dict

from dqnspeed.combinations import check
from dqnspeed.config import RunConfig

_PACKAGE = Path(__file__).resolve().parent
CONF_DIR = str(_PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent / "conf")

_RESOLVERS: dict[str, Callable[..., Any]] = {
    "mul": lambda *factors: math.prod(factors),
    "tenth": lambda steps, usual: max(1, (usual if steps is None else steps) // 10),  # of a run, or of the usual one
    "unless": lambda given, value: value if given is None else None,
}


def register() -> None:
    """Give Hydra the schema and the resolvers that the YAML files use."""
    for name, resolver in _RESOLVERS.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)
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


register()
