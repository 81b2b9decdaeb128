"""Fields of a schema with their meaning and range, and the check of the ranges."""

from __future__ import annotations

import difflib
import importlib.util
import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

# The bounds of a number: in words, and how a value is held to them.
BOUNDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "ge": ("at least", operator.ge),
    "gt": ("more than", operator.gt),
    "le": ("at most", operator.le),
    "lt": ("less than", operator.lt),
}


# Types in words, in this order.
KINDS = {
    int: "a whole number", float: "a number", bool: "true or false", str: "text", list: "a list, as in [a,b]",
    dict: "a mapping, as in {a: 1}", type(None): "null",
}  # fmt: skip


MOST = 10**12  # size of a whole number, at which no counter or container overflows


class ConfigError(ValueError):
    """The configuration cannot be used; the message is one sentence for the user."""


def path_of(folder: str | Path) -> Path:
    """The path of a ``folder`` that a caller from Python names; raises :class:`ConfigError` if it is none."""
    if not isinstance(folder, (str, Path)) or "\0" in str(folder):
        raise ConfigError(f"folder={folder!r}: takes the path of a folder, as in 'outputs/cartpole'.")
    return Path(folder)


def check_installed(option: str, module: str, extra: str) -> None:
    """Raise :class:`ConfigError` if ``module``, which ``option`` needs, is not installed."""
    if importlib.util.find_spec(module) is None:
        raise ConfigError(f"{option}: needs {module}. pip install 'dqnspeed[{extra}]' installs it.")


def nearest(word: str, words: Sequence[str]) -> str:
    """``" (nearest: a, b)"``, the ``words`` most similar to ``word``, or an empty string."""
    near = difflib.get_close_matches(word, words, n=3, cutoff=0.6)
    if not near:
        near = [w for w in words if w.rpartition(".")[2] == word.rpartition(".")[2]][:3]
    return f" (nearest: {', '.join(near)})" if near else ""


def alternatives(kind: Any) -> tuple[Any, ...]:
    """The types that a type hint allows."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def in_words(kinds: Collection[Any]) -> str:
    """The values of these types, such as ``a whole number or null``."""
    plain = {get_origin(kind) or kind for kind in kinds}
    return " or ".join(words for kind, words in KINDS.items() if kind in plain)


def option(
    about: str,
    *,
    choices: Sequence[str] | None = None,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    changeable: bool = False,
    **default: Any,
) -> Any:
    """A field of a schema: what it means, which values it takes, and its ``default`` if no file sets one.

    Args:
        changeable: the value may change when a run is resumed.
    """
    bounds = {"ge": ge, "gt": gt, "le": le, "lt": lt}
    return field(metadata={"about": about, "choices": choices, "changeable": changeable, **bounds}, **default)


def check_values(node: Any, only: Collection[str] | None = None) -> None:
    """Raise :class:`ConfigError` at the first value of a (nested) dataclass that is out of range; ``only`` these."""
    for key, value, meta in leaves(node):
        if only is None or key in only:
            _check_value(key, value, meta)


def leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Key, value and metadata of every option, scalars first, since other values are computed from them."""
    for f in sorted(fields(node), key=lambda f: is_dataclass(getattr(node, f.name))):
        value = getattr(node, f.name)
        if is_dataclass(value):
            yield from leaves(value, f"{prefix}{f.name}.")
        else:
            yield f"{prefix}{f.name}", value, f.metadata


def _check_value(key: str, value: Any, meta: Any) -> None:
    if value is None:
        return
    for chosen in value if isinstance(value, list) else [value]:
        if meta["choices"] is not None and chosen not in meta["choices"]:
            raise ConfigError(f"{key}={chosen}: choose one of {', '.join(meta['choices'])}.")
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return
    if not math.isfinite(value):
        raise ConfigError(f"{key}={value}: must be a finite number.")
    if isinstance(value, int) and abs(value) > MOST:
        raise ConfigError(f"{key}={value}: must be between -{MOST} and {MOST}.")
    for name, (words, holds) in BOUNDS.items():
        if meta[name] is not None and not holds(value, meta[name]):
            raise ConfigError(f"{key}={value}: must be {words} {meta[name]}.")


def limits(meta: Mapping[str, Any]) -> list[str]:
    """The bounds of an option in words: ``["at least 0", "less than 1"]``."""
    return [f"{words} {meta[name]}" for name, (words, _) in BOUNDS.items() if meta[name] is not None]


def usage(line: str, about: str, schema: type) -> str:
    """The ``--help`` of a small command: ``line`` to call it, and every field of ``schema``."""
    rows = []
    for f in fields(schema):
        meta = f.metadata
        allowed = f" ({', '.join(meta['choices'])})" if meta["choices"] else ""
        shown = str(f.default).lower() if isinstance(f.default, bool) else "null" if f.default is None else f.default
        default = "" if f.default is MISSING else f" [{shown}]"
        rows.append(f"  {f.name:<12} {meta['about']}{allowed}{default}")
    return "\n".join([about, "", f"  {line}", "", *rows])
