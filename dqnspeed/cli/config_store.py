"""Schemas, resolvers and options without a file, which Hydra gets beside the files of ``conf/``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast, get_type_hints

from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from dqnspeed.cli import plugins
from dqnspeed.cli.schemas import CONF_DIR, default_options, has_file, schema, writable
from dqnspeed.config.options import ConfigError
from dqnspeed.config.registry import GROUPS, class_of
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs.games import rom_of


def fill() -> None:
    """Give Hydra the schemas, the resolvers and the options of plugins that have no file.

    An option of a plugin that cannot be used is left out, and a sentence names it.
    """
    add_resolvers(replace=False)
    store = ConfigStore.instance()
    store.store(name="schema", node=schema())
    for group, known in GROUPS.items():
        for name, option in list(known.options.items()):
            try:
                node = writable(option)
                if not _is_ours(option) and Path(CONF_DIR, group, f"{name}.yaml").is_file():
                    raise ConfigError("dqnspeed has a file of this name")
            except Exception as error:  # whatever OmegaConf says of a type that it does not know
                if _is_ours(option):
                    raise
                del known.options[name]
                reason = str(error).splitlines()[0].rstrip(".")
                plugins.print_note(f"plugin {option.__module__}: {group}={name} is left out: {reason}.")
                continue
            store.store(group=f"schema/{group}", name=name, node=node)
            if name != known.fallback and not has_file(group, name):
                store.store(group=group, name=name, **_without_file(group, name, option))


def add_resolvers(replace: bool) -> None:
    """Register the functions that ``${...}`` in ``conf/`` calls.

    Args:
        replace: replace resolvers of other packages with the same names.
    """
    for name, resolver in _RESOLVERS.items():
        if replace or not OmegaConf.has_resolver(name):
            OmegaConf.register_new_resolver(name, resolver, replace=True)


def _is_ours(option: type) -> bool:
    return option.__module__.partition(".")[0] == "dqnspeed"


def _without_file(group: str, name: str, option: type) -> dict[str, Any]:
    """The config of an option without a file: the numbers of another option, and the defaults of its own fields.

    Options of ``algo`` are global packages, which may set keys outside of their group.
    """
    parent, own = _parent(group, option)
    declared = {key for kind in own for key in vars(kind).get("__annotations__", {})}
    known = {f.name for f in fields(option)}
    made = writable(option)
    values: dict[str, Any] = {key: made[key] for key in declared & known if not OmegaConf.is_missing(made, key)}
    values["name"] = name
    at = f"schema/{group}@{group if group == 'algo' else '_here_'}"
    if {f.name for f in fields(class_of(group, parent))} <= known:
        node: dict[str, Any] = {"defaults": [parent, {f"override /{at}": name}, "_self_"]}
    else:  # its file has numbers that this option has not
        node = cast("dict[str, Any]", OmegaConf.to_container(_file(group, parent), resolve=False))
        node["defaults"][0] = {f"/{at}": name}
        numbers = node.pop("algo") if group == "algo" else {key: node.pop(key) for key in [*node][1:]}
        values = {key: value for key, value in numbers.items() if key in known} | values
    return {
        "node": node | ({"algo": values} if group == "algo" else values),
        "package": "_global_" if group == "algo" else group,
    }


def _parent(group: str, option: type) -> tuple[str, list[type]]:
    """The option with a file whose numbers ``option`` takes, and the classes whose numbers are not in that file.

    This is the nearest option that ``option`` is derived from, else the option that shares most classes with it: the
    default of the group if there are several.
    """
    classes = list(option.__mro__)
    for i, kind in enumerate(classes[1:], 1):
        for name, other in GROUPS[group].options.items():
            if other is kind and has_file(group, name):
                return name, classes[:i]
    related = [default_options()[group], *(name for name in GROUPS[group].options if _is_whole(group, name))]
    return max(related, key=lambda name: len({*classes} & {*class_of(group, name).__mro__})), classes


def _file(group: str, name: str) -> DictConfig:
    return cast("DictConfig", OmegaConf.load(Path(CONF_DIR, group, f"{name}.yaml")))


def _is_whole(group: str, name: str) -> bool:
    """Whether dqnspeed has a file of this option that holds all its numbers."""
    return Path(CONF_DIR, group, f"{name}.yaml").is_file() and f"/schema/{group}" in str(_file(group, name).defaults[0])


def names() -> dict[str, list[str]]:
    """The options of each group, as Hydra finds them; options in folders, such as ``ladder/00_baseline``, come last."""
    loader = GlobalHydra.instance().config_loader()
    found = {}
    for group in (name for name in loader.list_groups("") if name not in ("hydra", "schema")):
        found[group] = loader.get_group_options(group)
        for folder in loader.list_groups(group):
            found[group] += [f"{folder}/{name}" for name in loader.get_group_options(f"{group}/{folder}")]
    return found


def option_list() -> str:
    """One line for each group with its options, for ``--help``."""
    return "\n".join(f"{group}: {', '.join(options)}" for group, options in names().items())


def group_list() -> str:
    """One line for each group with its purpose, for ``--help``."""
    about = {f.name: f.metadata["about"] for f in fields(RunConfig) if is_dataclass(_HINTS[f.name])}
    about["numbers"] = "numbers of an algorithm for an experiment, which chooses them, as cartpole does"
    about["sweep"] = "many runs of the chapter in place of one; sweep.dry_run=true tells which"
    return "\n".join(f"  {name:<13} {text}" for name, text in about.items())


def bound_of(env_id: str, pong: float | None = None) -> float | None:
    """The mean return at which a game counts as solved, by ``conf/reward_bounds.yaml``; ``None`` if unknown.

    Args:
        pong: another bound for Pong.
    """
    game = rom_of(str(env_id)) or env_id
    return pong if game == "pong" and pong is not None else _reward_bounds().get(game)


_HINTS = get_type_hints(RunConfig)
_RESOLVERS: dict[str, Callable[..., Any]] = {
    "mul": lambda *factors: math.prod(factors),
    "tenth": lambda steps, usual: max(1, (usual if steps is None else steps) // 10),  # of a run, or of the usual one
    "bound_of": bound_of,
    "option_list": option_list,
    "group_list": group_list,
}


@cache
def _reward_bounds() -> dict[str, float]:
    return cast("dict[str, float]", OmegaConf.to_container(OmegaConf.load(f"{CONF_DIR}/reward_bounds.yaml")))
