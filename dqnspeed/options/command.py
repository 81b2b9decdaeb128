"""``python -m dqnspeed.options [WORD]``: the reference of all options in the terminal."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Markdown, TableElement
from rich.table import Table

from dqnspeed.cli.app import run_app
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.config.options import ConfigError, nearest, option
from dqnspeed.options import reference


@dataclass(frozen=True)
class OptionsConfig:
    markdown: bool = option("print the whole reference in Markdown", default=False)


COMMAND_LINE = CommandLine(
    "python -m dqnspeed.options [GROUP | GROUP.KEY | GROUP=OPTION | WORD] [KEY=VALUE...]",
    "Print what each option of dqnspeed.train means, its values, and its default in each option of its group.",
    OptionsConfig,
    others="a group, a key, GROUP=OPTION, or a word to search for",
)


class _Table(TableElement):
    """A table that keeps all text and whole names in a narrow terminal."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            assert isinstance(table, Table)
            for column in table.columns:
                column.overflow = "fold"
            table.columns[0].no_wrap = True
            yield table


class Page(Markdown):
    """A page of the reference for the terminal."""

    elements = {**Markdown.elements, "table_open": _Table}


def _page(word: str) -> str:
    """The Markdown about a group, a key, an option or a word.

    Raises:
        ConfigError: no name or description contains the word.
    """
    sections = reference.sections()
    if not word:
        return reference.overview()
    name, _, option = word.partition("=")
    if section := sections.get(name):
        if option and section.options:
            if option not in section.options:
                known = nearest(option, [*section.options])
                raise ConfigError(
                    f"{word}: there is no such option{known}. Choose one of {', '.join(section.options)}."
                )
            section = replace(section, options={option: section.options[option]})
        return reference.page(section)
    found = "\n".join(filter(None, (reference.page(section, name.lower()) for section in sections.values())))
    if not found:
        keys = [key for section in sections for key in reference.meanings(section)]
        raise ConfigError(f"{word}: no option has this name or description{nearest(word, [*sections, *keys])}.")
    return found


def _main() -> None:
    options, words = COMMAND_LINE.read(sys.argv[1:])
    if options.markdown and words:
        raise ConfigError(f"{words[0]}: cannot be combined with markdown=true, which prints everything. Leave one out.")
    console = Console()
    with Console(stderr=True).status("reading the options"):
        page = reference.markdown() if options.markdown else _page(" ".join(words))
    if options.markdown:
        print(page)
    elif console.is_terminal:
        console.print(Page(page))
    else:
        print(re.sub(r'<a id="[^"]*"></a>', "", page))  # anchors are only for the site


def main() -> None:
    """Console entry point."""
    run_app(_main)
