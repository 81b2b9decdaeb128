"""The registered options of each group: built-in ones, and options of plugins."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, cast, get_type_hints

from dqnspeed.config.options import ConfigError, nearest
from dqnspeed.config.schema import RunConfig

Option = TypeVar("Option", bound=type)


@dataclass
class Group:
    """A config group whose options are frozen dataclasses derived from ``base``.

    Args:
        base: as set by :func:`base_of`.
        fallback: the option of a name that is not registered; such a name is a label.
    """

    base: type
    fallback: str | None = None
    options: dict[str, type] = field(default_factory=dict)


_HINTS = get_type_hints(RunConfig)
GROUPS: dict[str, Group] = {
    "algo": Group(_HINTS["algo"]),
    "parallelism": Group(_HINTS["parallelism"]),
    "replay": Group(_HINTS["replay"]),
    "exploration": Group(_HINTS["exploration"]),
    "optimizer": Group(_HINTS["optimizer"]),
    "model": Group(_HINTS["model"], fallback="convolutional"),
    "wrappers": Group(_HINTS["wrappers"], fallback="standard"),
    "backend": Group(_HINTS["backend"]),
}
FOLDERS: list[Path] = []  # of YAML files that plugins bring


def base_of(group: str) -> Callable[[Option], Option]:
    """Class decorator: every option of ``group`` must be a subclass."""

    def set_base(base: Option) -> Option:
        GROUPS[group].base = base
        return base

    return set_base


def register(group: str, name: str) -> Callable[[Option], Option]:
    """Class decorator: register a frozen dataclass as the option ``group=name``.

    Raises:
        ConfigError: there is no such group, the class is no dataclass of this group, or the name is taken.
    """
    if not re.fullmatch(r"[\w-]+", name):
        raise ConfigError(f"register({group!r}, {name!r}): a name has letters, digits, _ and - alone.")
    if group not in GROUPS:
        raise ConfigError(f"register({group!r}, {name!r}): there is no such group; choose one of {', '.join(GROUPS)}.")

    def add(option: Option) -> Option:
        known = GROUPS[group]
        if not issubclass(option, known.base):
            raise ConfigError(f"{group}={name}: {_path(option)} must be a subclass of {_path(known.base)}.")
        if "__dataclass_fields__" not in vars(option):
            raise ConfigError(f"{group}={name}: {_path(option)} must be a dataclass itself, under register().")
        if plain := [f.name for f in fields(cast("Any", option)) if "about" not in f.metadata]:
            raise ConfigError(f"{group}={name}: {_path(option)}.{plain[0]} must be made by option(...).")
        for key in own_fields(option):
            bases = [base for base in option.__mro__[1:] if key in vars(base)]
            if any(key not in getattr(base, "__dataclass_fields__", {}) for base in bases):
                raise ConfigError(f"{group}={name}: {_path(option)}.{key} hides what its base has; rename it.")
        taken = known.options.setdefault(name, option)
        if _path(taken) != _path(option):
            raise ConfigError(f"{group}={name}: is registered twice, by {_path(taken)} and {_path(option)}.")
        known.options[name] = option  # a reloaded module registers its class again
        return option

    return add


def own_fields(option: type) -> list[str]:
    """The fields that a class declares, without inherited ones."""
    return [f.name for f in fields(cast("Any", option)) if f.name in vars(option).get("__annotations__", {})]


def add_folder(folder: str | Path) -> None:
    """Let Hydra find the option files in ``folder``, which has the layout of ``conf/``.

    Raises:
        ConfigError: there is no such folder.
    """
    path = Path(folder).resolve()
    if not path.is_dir():
        raise ConfigError(f"add_folder: {path} is no folder.")
    if path not in FOLDERS:
        FOLDERS.append(path)


def class_of(group: str, name: Any) -> type:
    """The class of ``group=name``.

    Raises:
        ConfigError: the name is not registered.
    """
    known = GROUPS[group]
    found = known.options.get(str(name)) or known.options.get(known.fallback or "")
    if found is None and name is None:
        raise ConfigError(
            f"{group}: has no option; a configuration of your own begins with defaults: [config, _self_], and no group "
            f"can be left out."
        )
    if found is None:
        names = sorted(known.options)
        raise ConfigError(
            f"{group}.name={name}: there is no such option{nearest(str(name), names)}; choose one of "
            f"{', '.join(names)}."
        )
    return found


def _path(option: type) -> str:
    return f"{option.__module__}.{option.__qualname__}"
