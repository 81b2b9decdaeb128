"""From Hydra's configuration to plain dataclasses: the only module below the entry points that knows OmegaConf."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast, get_type_hints

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from dqnspeed.config import changes
from dqnspeed.config.combinations import check
from dqnspeed.config.options import ConfigError, nearest
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs.games import rom_of

_PACKAGE = Path(__file__).resolve().parents[1]
CONF_DIR = str(_PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent / "conf")


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
    return _keys_of(schema())


def _keys_of(root: DictConfig) -> list[str]:
    found = list[str]()
    for name in map(str, root):
        node = root._get_node(name)
        below = list(node) if isinstance(node, DictConfig) and not node._is_none() else []
        found += [name, *(f"{name}.{key}" for key in below)]
    return found


def bound_of(env_id: str, pong: float | None = None) -> float | None:
    """The mean return at which a game counts as solved, by ``conf/reward_bounds.yaml``; ``None`` where none is known.

    Args:
        pong: what Pong's bound is instead.
    """
    game = rom_of(str(env_id)) or env_id
    return pong if game == "pong" and pong is not None else _bounds().get(game)


_RESOLVERS: dict[str, Callable[..., Any]] = {
    "mul": lambda *factors: math.prod(factors),
    "tenth": lambda steps, usual: max(1, (usual if steps is None else steps) // 10),  # of a run, or of the usual one
    "unless": lambda given, value: value if given is None else None,
    "bound_of": bound_of,
}


@cache
def _bounds() -> dict[str, float]:
    return cast("dict[str, float]", OmegaConf.to_container(OmegaConf.load(f"{CONF_DIR}/reward_bounds.yaml")))


def _writable(kind: Any) -> DictConfig:
    # OmegaConf makes the node of a frozen dataclass read-only, which would stop Hydra from composing it.
    node: DictConfig = OmegaConf.structured(kind)
    OmegaConf.set_readonly(node, None)
    return node


def from_hydra(cfg: DictConfig) -> RunConfig:
    """Turn a composed configuration into plain frozen dataclasses, checked.

    Raises:
        ConfigError: an option is unknown, or a value missing, out of range, or at odds with another.
    """
    own = copy.copy(cfg)
    with open_dict(own):
        own.pop("hydra", None)
    known = keys()
    for key in _keys_of(own):
        if key not in known:
            raise ConfigError(f"{key}: there is no such option{nearest(key, known)}.")
    run = OmegaConf.to_object(own)
    assert isinstance(run, RunConfig)
    check(run)
    return run


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


register()
