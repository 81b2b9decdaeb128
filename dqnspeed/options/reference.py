"""The reference of all options: meaning, values, and defaults in each option of their group.

The reference is read from the registered schemas, also of plugins, and from the files of ``conf/``.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast, get_origin, get_type_hints

import hydra
from omegaconf import OmegaConf

from dqnspeed.cli import (
    compose,  # noqa: F401  loads plugins and registers their options
    config_store,
)
from dqnspeed.cli.schemas import CONF_DIR, default_options
from dqnspeed.config.options import alternatives, in_words, limits
from dqnspeed.config.registry import FOLDERS, GROUPS, class_of
from dqnspeed.config.schema import RunConfig
from dqnspeed.tracking.run_folder import flat

RUN = "run"  # the section of keys outside of groups
EXPERIMENT = "experiment"
DESCRIPTIONS = ("kind", "about")  # keys that describe an experiment
_HINTS = get_type_hints(RunConfig)
# The functions of ``${...}`` in option files, in words.
_RESOLVERS: dict[str, Callable[..., str]] = {
    "mul": lambda *factors: " × ".join(factors),
    "tenth": lambda steps, usual: f"a tenth of {steps}, or of {usual} where that is null",
    "bound_of": lambda env, *_: f"that of {env} in conf/reward_bounds.yaml",
}


@dataclass(frozen=True)
class Key:
    """A key of a section; options of a group may have keys of one name with different meanings.

    Attributes:
        name: as in an override, for example ``algo.clip_range``.
        takes: the allowed values in words.
        defaults: as written in the files, by option of the group; outside of groups by an empty name.
    """

    name: str
    about: str
    takes: str
    defaults: Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """A config group; or ``stop``, ``eval`` and :data:`RUN`, which have keys but no options.

    Attributes:
        options: description of each option.
        default: the option chosen by default.
    """

    name: str
    about: str
    options: Mapping[str, str]
    default: str | None


@cache
def sections() -> dict[str, Section]:
    """Every section by name, in the order of :class:`RunConfig`."""
    with hydra.initialize_config_dir(CONF_DIR, version_base="1.3"):
        names = config_store.names()
    found = {}
    for f in fields(RunConfig):
        if is_dataclass(_HINTS[f.name]):
            options = {name: _about(f.name, name) for name in names.get(f.name, [])}
            found[f.name] = Section(f.name, f.metadata["about"], options, default_options().get(f.name))
    return {**found, RUN: Section(RUN, "keys outside of groups", {}, None)}


def meanings(section: str) -> dict[str, str]:
    """The meaning of each key of a section; faster than :func:`keys`, which composes defaults."""
    schemas = [*GROUPS[section].options.values()] if section in GROUPS else [_HINTS.get(section, RunConfig)]
    found = dict[str, list[str]]()
    for schema in schemas:
        for name, about, _ in _described(section, schema):
            found.setdefault(name, []).append(about)
    return {name: "; ".join(dict.fromkeys(abouts)) for name, abouts in found.items()}


def keys(section: Section) -> list[Key]:
    """The keys of a section; keys of one name follow each other."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for option in section.options or [""]:
        values, _ = _composed(*([f"{section.name}={option}"] if option else []))
        schema = _HINTS.get(section.name, RunConfig)
        if section.name in GROUPS:
            schema = class_of(section.name, values[f"{section.name}.name"])
        for described in _described(section.name, schema):
            found.setdefault(described, {})[option] = values[described[0]]
    names = list(dict.fromkeys(name for name, _, _ in found))
    return [Key(*described, found[described]) for described in sorted(found, key=lambda one: names.index(one[0]))]


@cache
def equivalent_overrides(section: str, option: str) -> list[str]:
    """The overrides outside of its group that an option stands for; values in words."""
    values, chosen = _composed(f"{section}={option}")
    _, usual = _composed()
    groups = [f"{group}={name}" for group, name in chosen.items() if name != usual[group] and group != section]
    without, _ = _composed(*groups)
    changed = [key for key in values if not key.startswith(f"{section}.") and values[key] != without.get(key)]
    return [*groups, *(f"{key}={written(values[key])}" for key in changed)]


def written(value: Any) -> str:
    """A default as in an override; a computed value in words."""
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {written(one)}' for key, one in value.items())}}}"
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    text, inner = str(value), re.compile(r"\$\{(?:(\w+):)?([^${}]*)\}")
    while found := inner.search(text):
        function, arguments = found.groups()
        if function in _RESOLVERS:
            arguments = _RESOLVERS[function](*arguments.split(","))
        elif function:
            arguments = f"{function}({arguments})"
        text = text.replace(found[0], arguments)
    return text


def defaults_in_words(key: Key, section: Section) -> str:
    """The defaults of a key, for example ``0.99; 0.9 (q_learning)``; a default shared by most options comes first."""
    leaf = key.name.partition(".")[2]
    if leaf == "name" or (section.name == EXPERIMENT and leaf in DESCRIPTIONS):
        return "each its own"
    by_value: dict[str, list[str]] = {}
    for option, value in key.defaults.items():
        by_value.setdefault(written(value), []).append(option)
    usual = max(by_value, key=lambda value: len(by_value[value]))
    is_shared = len(key.defaults) >= len(section.options) and 2 * len(by_value[usual]) > len(key.defaults)
    first = [usual] if is_shared else []
    return "; ".join([*first, *(f"{v} ({', '.join(options)})" for v, options in by_value.items() if v not in first)])


def _described(section: str, schema: type) -> Iterator[tuple[str, str, str]]:
    """Name, meaning, and allowed values in words of each key in a schema."""
    hints = get_type_hints(schema)
    for f in fields(cast("Any", schema)):
        if not is_dataclass(hints[f.name]):
            name = f.name if section == RUN else f"{section}.{f.name}"
            yield name, f.metadata["about"], _takes(hints[f.name], f.metadata)


def _takes(kind: Any, meta: Mapping[str, Any]) -> str:
    values = in_words(alternatives(kind))
    if meta["choices"]:
        *some, last = meta["choices"]
        values = f"{'a list of ' if get_origin(kind) is list else ''}{', '.join(some)} or {last}"
    return ", ".join([values, *limits(meta)])


@cache
def _composed(*overrides: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Every value by key, as written in the files, and the chosen option of each group."""
    with hydra.initialize_config_dir(CONF_DIR, version_base="1.3"):
        cfg = hydra.compose("config", overrides=list(overrides), return_hydra_config=True)
    chosen = {group: name for group, name in cfg.hydra.runtime.choices.items() if group in default_options()}
    plain = cast("dict[str, Any]", OmegaConf.to_container(OmegaConf.masked_copy(cfg, [*_HINTS]), resolve=False))
    return flat(plain), chosen


def _about(group: str, name: str) -> str:
    """The description of an option.

    Returns:
        The ``about`` of an experiment, the comment at the top of the option's file, or the keys that the file sets;
        without a file, the docstring of the option's class.
    """
    files = (folder / group / f"{name}.yaml" for folder in (Path(CONF_DIR), *FOLDERS))
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        option = GROUPS[group].options[name]
        doc = (option.__doc__ or "").strip()
        return "" if doc.startswith(f"{option.__name__}(") else doc.partition("\n\n")[0].replace("\n    ", " ")
    text = file.read_text(encoding="utf-8")
    top = re.match(r"(?:#.*\n)*", text)
    comment = " ".join(re.findall(r"^#\s*((?!@package)\S.*)", top[0] if top else "", re.MULTILINE))
    cfg = cast("dict[str, Any]", OmegaConf.to_container(OmegaConf.create(text)))
    sets = {key: value for key, value in cfg.items() if key != "defaults"}
    if group == EXPERIMENT:
        comment = (sets.get(EXPERIMENT) or {}).get("about") or comment
    return comment or " ".join(f"{key}={written(value)}" for key, value in sets.items())


def markdown() -> str:
    """The whole reference in Markdown."""
    return "\n".join(map(page, sections().values()))


def overview() -> str:
    """A table of the sections, in Markdown."""
    rows = ([one.name, one.about, ", ".join(one.options or meanings(one.name))] for one in sections().values())
    return _table(["group", "what it decides", "options or keys"], rows)


def page(section: Section, word: str = "") -> str:
    """A section in Markdown, with an anchor for each key, for example ``#algo.clip_range``.

    Args:
        word: list only options and keys with this lower-case word in their name or description. The page is empty if
            there are none.
    """
    options = [name for name, about in section.options.items() if word in f"{name} {about}".lower()]
    names = [name for name, about in meanings(section.name).items() if word in f"{name} {about}".lower()]
    blocks = [f"## {section.name}\n", f"{section.about[0].upper()}{section.about[1:]}.\n"]
    if options:
        blocks.append(_table(["option", "what it is", "what it sets elsewhere"], _option_rows(section, options)))
    if names:
        blocks.append(_table(["key", "what it means", "what it takes", "default"], _key_rows(section, names)))
    return "\n".join(blocks) if options or names else ""


def _key_rows(section: Section, names: Collection[str]) -> Iterator[list[str]]:
    anchors = set[str]()
    for key in (key for key in keys(section) if key.name in names):
        anchor = "" if key.name in anchors else f'<a id="{key.name}"></a>'
        anchors.add(key.name)
        cells = (key.about, key.takes, defaults_in_words(key, section))
        yield [f"{anchor}`{key.name}`", *(html.escape(cell, quote=False) for cell in cells)]


def _option_rows(section: Section, options: Iterable[str]) -> Iterator[list[str]]:
    for option in options:
        name = f"`{option}`{' (default)' if option == section.default else ''}"
        about = section.options[option]
        if section.name == EXPERIMENT:
            values, _ = _composed(f"{EXPERIMENT}={option}")
            about = f"{about} Kind: {', '.join(values['experiment.kind'])}."
        overrides = equivalent_overrides(section.name, option)
        yield [name, html.escape(about, quote=False), " ".join(f"`{one}`" for one in overrides)]


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
    return "\n".join([*lines, ""])
