"""``python -m dqnspeed.options [WORD]``: the reference of every option, in the terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from rich.console import Console, RenderableType

from dqnspeed.cli.app import run_app
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.config.options import ConfigError, nearest, option
from dqnspeed.options import pages, reference


@dataclass(frozen=True)
class OptionsConfig:
    markdown: bool = option("print the whole reference in Markdown", default=False)


COMMAND_LINE = CommandLine(
    "python -m dqnspeed.options [GROUP | GROUP.KEY | GROUP=OPTION | WORD] [KEY=VALUE...]",
    "What every option of dqnspeed.train means, what it takes, and its default in each option of its group.",
    OptionsConfig,
    others="a group, a key, GROUP=OPTION, or a word to search for",
    is_other=lambda _: True,
)


def _page(word: str) -> RenderableType:
    """What there is to say of a word.

    Raises:
        ConfigError: it is nobody's name and in no description.
    """
    sections = reference.sections()
    if not word:
        return pages.overview()
    if word in sections:
        return pages.group(sections[word])
    group, equals, name = word.partition("=")
    if equals and group in sections and sections[group].options:
        options = sections[group].options
        if name in options:
            return pages.option(sections[group], name)
        raise ConfigError(
            f"{word}: there is no such option{nearest(name, [*options])}; choose one of {', '.join(options)}."
        )
    names = {name: section for section in sections.values() for name in reference.meanings(section.name)}
    if group in names:
        return pages.key(names[group], group)
    page = pages.found(word)
    if page is None:
        raise ConfigError(f"{word}: no option has this name or description{nearest(word, [*sections, *names])}.")
    return page


def _main() -> None:
    options, words = COMMAND_LINE.read(sys.argv[1:])
    if options.markdown and words:
        raise ConfigError(f"{' '.join(words)}: does not go with markdown=true, which prints everything.")
    if options.markdown:
        print(reference.markdown())
    else:
        with Console(stderr=True).status("reading the options"):
            page = _page(" ".join(words))
        pages.show(page)
    sys.stdout.flush()  # here what nobody takes ends nothing


def main() -> None:
    """Console entry point."""
    run_app(_main)
