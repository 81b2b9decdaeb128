"""The folder ``conf/``, the schemas of its groups, and all keys."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from omegaconf import DictConfig, OmegaConf

from dqnspeed.config.options import alternatives, nearest
from dqnspeed.config.registry import FOLDERS, GROUPS, class_of
from dqnspeed.config.schema import RunConfig

_PACKAGE = Path(__file__).resolve().parents[1]
CONF_DIR = str(_PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent / "conf")


def schema(chosen: DictConfig | None = None) -> DictConfig:
    """The schema for OmegaConf, with every value missing; do not change it, because it is cached.

    Args:
        chosen: a configuration whose ``name`` in each group chooses the schema of the group; by default a group has the
            keys that all its options share.

    Raises:
        ConfigError: a name is not registered.
    """
    kinds = {name: kind for name, kind in get_type_hints(RunConfig).items() if is_dataclass(kind)}
    if chosen is not None:
        kinds |= {name: class_of(name, (chosen.get(name) or {}).get("name")) for name in kinds if name in GROUPS}
    return _of_kinds(tuple(kinds.items()), chosen is None)


@cache
def _of_kinds(kinds: tuple[tuple[str, Any], ...], shared: bool) -> DictConfig:
    """The schema with these groups.

    Args:
        shared: whether the groups have only the keys that all their options share.
    """
    root = writable(RunConfig)
    for name, kind in kinds:
        root[name] = writable(kind)
        if shared and name in GROUPS:
            # A user's option file need not name its schema; unknown keys are refused after composition.
            OmegaConf.set_struct(root[name], False)
    for group in (root.env, root.tracking):
        group.kwargs = {}
        OmegaConf.set_struct(group.kwargs, False)  # environments and trackers may take any keyword
    return root


def keys() -> list[str]:
    """Every group, scalar and ``group.key`` of all schemas."""
    found = dict.fromkeys(keys_of(schema()))
    for group, known in GROUPS.items():
        found |= dict.fromkeys(f"{group}.{f.name}" for option in known.options.values() for f in fields(option))
    return list(found)


def kinds() -> dict[str, set[Any]]:
    """The types that each key takes in any option of its group."""
    found: dict[str, set[Any]] = {}
    for group, hint in get_type_hints(RunConfig).items():
        if not is_dataclass(hint):
            found[group] = {*alternatives(hint)}
            continue
        for option in GROUPS[group].options.values() if group in GROUPS else [hint]:
            hints = get_type_hints(option)
            for f in fields(option):
                found.setdefault(f"{group}.{f.name}", set()).update(alternatives(hints[f.name]))
    return found


def keys_of(root: DictConfig) -> list[str]:
    found = list[str]()
    for name in map(str, root):
        node = root._get_node(name)
        below = list(node) if isinstance(node, DictConfig) and not node._is_none() else []
        found += [name, *(f"{name}.{key}" for key in below)]
    return found


def unknown(key: str, chosen: str | None = None) -> str:
    """Part of a sentence about an unknown ``key``.

    Args:
        chosen: option of the key's group that lacks the key.
    """
    group, _, leaf = key.partition(".")
    options = GROUPS[group].options if group in GROUPS else {}
    owners = [name for name, option in options.items() if leaf in {f.name for f in fields(option)}]
    if chosen is None or not owners:
        return f"there is no such option{nearest(key, keys())}"
    return f"there is no such option of {group}={chosen}; it belongs to {group}={', '.join(owners)}"


def has_file(group: str, name: str) -> bool:
    return any((folder / group / f"{name}.yaml").is_file() for folder in (Path(CONF_DIR), *FOLDERS))


@cache
def default_options() -> dict[str, str]:
    """The default option of each group."""
    chosen = OmegaConf.load(f"{CONF_DIR}/config.yaml").defaults
    return {str(group): str(name) for entry in chosen if isinstance(entry, DictConfig) for group, name in entry.items()}


def writable(kind: Any) -> DictConfig:
    """A node of the dataclass ``kind``; OmegaConf makes a frozen dataclass read-only, which Hydra cannot compose."""
    node: DictConfig = OmegaConf.structured(kind)
    OmegaConf.set_readonly(node, None)
    return node
