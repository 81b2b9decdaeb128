"""What the terminal shows of the reference; piped, the same in plain lines of any length."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.console import Console, Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from dqnspeed.options import reference
from dqnspeed.options.reference import Key, Section, defaults_in_words, sections, written

LONGEST = 240  # characters of defaults that a terminal's table shows
UNLIMITED = 100_000  # columns
CALL = "python -m dqnspeed.options"


def show(page: RenderableType) -> None:
    """Print a page, as wide as the terminal; as plain lines where there is none."""
    console = Console()
    if console.is_terminal:
        console.print(page)
        return
    text = io.StringIO()
    Console(file=text, width=UNLIMITED, color_system=None).print(page)
    print(*(line.rstrip() for line in text.getvalue().splitlines()), sep="\n")


def overview() -> RenderableType:
    """Every section: what it decides, and the names of its options."""
    rows = [[section.name, section.about, ", ".join(section.options) or _names(section)] for section in _all()]
    asks = [
        [f"{CALL} algo", "a group: its options, what each key means and takes, and its defaults"],
        [f"{CALL} algo.clip", "a key"],
        [f"{CALL} algo=ppo", "an option: its numbers, and what it sets elsewhere"],
        [f"{CALL} clip", "a word in any name or description"],
    ]
    return Group(_table(["group", "decides", "options or keys"], rows), "", _table(["", ""], asks))


def group(section: Section) -> RenderableType:
    """A section: its options and its keys."""
    parts: list[RenderableType] = [_title(section.name, section.about), ""]
    if section.options:
        parts += [_options((section, option) for option in section.options), ""]
    return Group(*parts, _keys((section, key) for key in reference.keys(section.name)))


def key(section: Section, name: str) -> RenderableType:
    """One key, with its default in each option of its group."""
    parts: list[RenderableType] = []
    for found in (found for found in reference.keys(section.name) if found.name == name):
        parts += ["", _title(name, found.about), Text(f"takes {found.takes}")]
        if section.options:
            rows = [[f"{section.name}={option}", written(value)] for option, value in found.defaults.items()]
            parts += ["", _table(["in", "default"], rows)]
        else:
            parts.append(Text(f"default {written(*found.defaults.values())}"))
    return Group(*parts[1:])


def option(section: Section, name: str) -> RenderableType:
    """One option of a group: what it is, its numbers, and what it sets elsewhere."""
    rows = [
        [found.name, written(found.defaults[name]), f"{found.about} [{found.takes}]"]
        for found in reference.keys_of(section.name, name)
        if section.name != reference.EXPERIMENT
    ]
    parts: list[RenderableType] = [_title(f"{section.name}={name}", section.options[name])]
    if kind := reference.kind(section.name, name):
        parts.append(Text(kind))
    if rows:
        parts += ["", _table(["key", "default", "what it means"], rows)]
    if brings := reference.brings(section.name, name):
        parts += ["", "It also sets" if rows else "It sets", _table(["", ""], [pair.split("=", 1) for pair in brings])]
    return Group(*parts)


def found(word: str) -> RenderableType | None:
    """Keys and options with a word in their name or description; ``None`` where there are none."""
    word = word.lower()
    options = [
        (section, option) for section in _all() for option, about in section.options.items()
        if word in option.lower() or word in about.lower()
    ]  # fmt: skip
    keys = list[tuple[Section, Key]]()
    for section in _all():
        means = reference.meanings(section.name)
        names = {name for name, about in means.items() if word in name.lower() or word in about.lower()}
        keys += [(section, key) for key in reference.keys(section.name) if key.name in names] if names else []
    parts = [*([_options(options)] if options else []), *([_keys(keys)] if keys else [])]
    return Group(parts[0], *(part for later in parts[1:] for part in ("", later))) if parts else None


def _options(options: Iterable[tuple[Section, str]]) -> Table:
    rows = []
    for section, name in options:
        mark = " (default)" if name == section.default else ""
        about = filter(None, [section.options[name], reference.kind(section.name, name)])
        rows.append([f"{section.name}={name}{mark}", " ".join(about)])
    return _table(["option", "what it is"], rows)


def _keys(keys: Iterable[tuple[Section, Key]]) -> Table:
    rows = []
    for section, key in keys:
        default = defaults_in_words(key, section)
        if len(default) > LONGEST and Console().is_terminal:
            default = f"{len(key.defaults)} values: {CALL} {key.name}"
        rows.append([key.name, f"{key.about} [{key.takes}]", default])
    return _table(["key", "what it means", "default"], rows)


def _table(head: list[str], rows: Iterable[list[str]]) -> Table:
    columns = [Column(name, overflow="fold") for name in head]
    table = Table(*columns, box=None, show_header=any(head), pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for first, *others in rows:
        table.add_row(Text(first, "bold"), *map(Text, others))
    return table


def _title(name: str, about: str) -> Text:
    return Text.assemble((name, "bold"), f"  {about}")


def _names(section: Section) -> str:
    return ", ".join(reference.meanings(section.name))


def _all() -> Iterable[Section]:
    return sections().values()
