"""Every option: what it means, what it takes, and its default in each option of its group.

It is read from what a run is checked and composed with: the registered schemas, ours and those of plugins, and the
files of ``conf/``.
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
    compose,  # noqa: F401  loads plugins, and fills Hydra's store with their options
    config_store,
)
from dqnspeed.cli.schemas import CONF_DIR, default_options
from dqnspeed.config.options import alternatives, in_words, limits
from dqnspeed.config.registry import FOLDERS, GROUPS, class_of
from dqnspeed.config.schema import RunConfig
from dqnspeed.tracking.run_folder import flat

RUN = "run"  # the section of the keys that stand in no group
EXPERIMENT = "experiment"
OF_ITSELF = ("kind", "about")  # what an experiment says of itself
_HINTS = get_type_hints(RunConfig)
# The functions of ``${...}`` in option files, in words.
_WORDS: dict[str, Callable[..., str]] = {
    "mul": lambda *factors: " × ".join(factors),
    "tenth": lambda steps, usual: f"a tenth of {steps}, or of {usual} where that is null",
    "bound_of": lambda env, *_: f"that of {env} in conf/reward_bounds.yaml",
}


@dataclass(frozen=True)
class Key:
    """A key of a section.

    Attributes:
        name: as an override has it, ``algo.clip_range``; ``takes``: the values, in words.
        defaults: as the files write them, by the options of the group that have this key; outside of a group one, by
            an empty name. Keys of a group's options that share no more than a name are several.
    """

    name: str
    about: str
    takes: str
    defaults: Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """A config group, or keys that are none: ``stop``, ``eval`` and those of :data:`RUN`."""

    name: str
    about: str
    options: Mapping[str, str]  # what each is
    default: str | None  # the option that is chosen where none is given

    @property
    def overrides(self) -> list[str]:
        """What chooses each of its options; one empty override outside of a group."""
        return [f"{self.name}={option}" for option in self.options] or [""]


@cache
def sections() -> dict[str, Section]:
    """Every section by its name, in the order of :class:`RunConfig`."""
    with hydra.initialize_config_dir(CONF_DIR, version_base="1.3"):
        names = config_store.names()
    found = {}
    for f in fields(RunConfig):
        if is_dataclass(_HINTS[f.name]):
            options = {name: _about(f.name, name) for name in names.get(f.name, [])}
            found[f.name] = Section(f.name, f.metadata["about"], options, default_options().get(f.name))
    return {**found, RUN: Section(RUN, "what stands in no group", {}, None)}


def meanings(section: str) -> dict[str, str]:
    """What each key of a section means, by its name; without composing their defaults, which takes longer."""
    schemas = [*GROUPS[section].options.values()] if section in GROUPS else [_HINTS.get(section, RunConfig)]
    described = (one for schema in schemas for one in _described(section, schema))
    found: dict[str, str] = {}
    for name, about, _ in described:
        found[name] = "; ".join(dict.fromkeys([*filter(None, [found.get(name)]), about]))
    return found


def keys(section: Section) -> list[Key]:
    """The keys of a section."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for override in section.overrides:
        for key, value in _defaults(section.name, override):
            found.setdefault(key, {})[override.partition("=")[2]] = value
    names = list(dict.fromkeys(name for name, _, _ in found))  # those of one name together
    described = sorted(found, key=lambda one: names.index(one[0]))
    return [Key(*one, found[one]) for one in described]


@cache
def brings(section: str, option: str) -> list[str]:
    """The overrides outside of its group for which an option stands, with values in words."""
    values, chosen = _composed(f"{section}={option}")
    _, usual = _composed()
    groups = [f"{group}={name}" for group, name in chosen.items() if name != usual[group] and group != section]
    without, _ = _composed(*groups)
    own = [key for key in values if not key.startswith(f"{section}.") and values[key] != without.get(key)]
    return [*groups, *(f"{key}={written(values[key])}" for key in own)]


def kind(section: str, option: str) -> str:
    """A sentence on what an experiment changes; of other options, nothing."""
    if section != EXPERIMENT:
        return ""
    values, _ = _composed(f"{section}={option}")
    return f"Kind: {', '.join(values['experiment.kind'])}."


def written(value: Any) -> str:
    """A default as an override would write it; what is computed from other values, in words."""
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {written(one)}' for key, one in value.items())}}}"
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    text, inner = str(value), re.compile(r"\$\{(?:(\w+):)?([^${}]*)\}")
    while inner.search(text):
        text = inner.sub(lambda found: _call(found[1], found[2]), text)
    return text


def _call(function: str | None, arguments: str) -> str:
    if function is None:
        return arguments
    words = _WORDS.get(function)
    return f"{function}({arguments})" if words is None else words(*arguments.split(","))


def defaults_in_words(key: Key, section: Section) -> str:
    """The defaults of a key: ``0.99; 0.9 (q_learning)``, where the first is that of all other options."""
    leaf = key.name.partition(".")[2]
    if leaf == "name" or (section.name == EXPERIMENT and leaf in OF_ITSELF):
        return "each its own"
    by_value: dict[str, list[str]] = {}
    for option, value in key.defaults.items():
        by_value.setdefault(written(value), []).append(option)
    usual = max(by_value, key=lambda value: len(by_value[value]))
    shared = len(key.defaults) >= len(section.options) and 2 * len(by_value[usual]) > len(key.defaults)
    first = [usual] if shared else []
    return "; ".join([*first, *(f"{v} ({', '.join(options)})" for v, options in by_value.items() if v not in first)])


def _defaults(section: str, override: str) -> Iterator[tuple[tuple[str, str, str], Any]]:
    """Every key of a section as ``override`` composes it, and its default."""
    values, _ = _composed(*filter(None, [override]))
    named = section in GROUPS
    schema = class_of(section, values[f"{section}.name"]) if named else _HINTS.get(section, RunConfig)
    for described in _described(section, schema):
        yield described, values[described[0]]


def _described(section: str, schema: type) -> Iterator[tuple[str, str, str]]:
    """Name, meaning and values in words of the keys in a schema."""
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
    """Every value as the files write it, by its key, and the chosen option of each group."""
    with hydra.initialize_config_dir(CONF_DIR, version_base="1.3"):
        cfg = hydra.compose("config", overrides=list(overrides), return_hydra_config=True)
    chosen = {group: name for group, name in cfg.hydra.runtime.choices.items() if group in default_options()}
    plain = cast("dict[str, Any]", OmegaConf.to_container(OmegaConf.masked_copy(cfg, [*_HINTS]), resolve=False))
    return flat(plain), chosen


def _about(group: str, name: str) -> str:
    """What an option is: what an experiment says of itself, else the comment at the top of its file, else what the
    file sets, or the docstring of its class if it has no file."""
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
    return "\n".join(_table(["group", "what it decides", "options or keys"], rows))


def page(section: Section, word: str = "") -> str:
    """A section in Markdown, with an anchor a key, ``#algo.clip_range``.

    Args:
        word: in lower case; only options and keys with it in their name or description are listed. Without any the
            page is empty.
    """
    options = [name for name, about in section.options.items() if word in f"{name} {about}".lower()]
    names = [name for name, about in meanings(section.name).items() if word in f"{name} {about}".lower()]
    lines = [f"## {section.name}", "", f"{section.about[0].upper()}{section.about[1:]}.", ""]
    if options:
        lines += _table(["option", "what it is", "what it sets elsewhere"], _option_rows(section, options))
    if names:
        lines += _table(["key", "what it means", "what it takes", "default"], _key_rows(section, names))
    return "\n".join(lines) if options or names else ""


def _key_rows(section: Section, names: Collection[str]) -> Iterator[list[str]]:
    anchors = set[str]()
    for key in (key for key in keys(section) if key.name in names):
        anchor = "" if key.name in anchors else f'<a id="{key.name}"></a>'
        anchors.add(key.name)
        yield [f"{anchor}`{key.name}`", *map(_text, (key.about, key.takes, defaults_in_words(key, section)))]


def _option_rows(section: Section, options: Iterable[str]) -> Iterator[list[str]]:
    for option in options:
        name = f"`{option}`{' (default)' if option == section.default else ''}"
        about = " ".join(filter(None, [section.options[option], kind(section.name, option)]))
        yield [name, _text(about), " ".join(f"`{one}`" for one in brings(section.name, option))]


def _text(text: str) -> str:
    return html.escape(text, quote=False)


def _table(head: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
    yield ""
