"""A result for people: tables in the terminal; and beside ``bench.json`` a page and its picture."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dqnspeed.bench import page, picture
from dqnspeed.bench.result import Result
from dqnspeed.bench.rows import FAILED, NOISE, RECOMMENDED, Column, columns, gain, remark, sections
from dqnspeed.system import atomic

WIDE = 10_000  # columns of a file or a pipe
GAP, NAME_WIDTH = 2, 24  # spaces between columns; the least of the first before the last is left out
STYLES = {RECOMMENDED: "bold green", NOISE: "dim", "": ""}


def table(result: Result, console: Console | None = None) -> None:
    """Print ``result``, the recommended line last. A narrow terminal gets fewer columns; a pipe gets all."""
    console = console or console_of_any_width()
    for section in sections(result):
        console.print(Text(f"\n{section.title}", "bold"))
        if section.measured:
            styles = [STYLES[remark(one, result)] for one in section.measured]
            console.print(tabulate(columns(section, result), styles, console.width))
        for one in section.failed:
            console.print(Text(f"{one.name}: {FAILED}: {one.error}", "red"))
        if section.floors:
            console.print(Text(f"The most: {'; '.join(section.floors)}.", "dim"))
    console.print()
    for text in _end(result):
        console.print(text, soft_wrap=True)


def console_of_any_width() -> Console:
    """The terminal; or a pipe or file, into which everything goes, however wide."""
    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    return console


def tabulate(columns: Sequence[Column], styles: Sequence[str], width: int) -> Table:
    """Cells by their headings in a table for a terminal of this width, which loses its last columns if it must.

    Args:
        styles: of the rows, for rich.
    """
    shown = [*columns]
    while len(shown) > 2 and NAME_WIDTH + sum(GAP + max(map(len, [head, *cells])) for head, cells in shown[1:]) > width:
        shown.pop()
    heads = [head for head, _ in shown]
    drawn = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim", show_header=any(heads))
    for number, head in enumerate(heads):
        is_name = number == 0
        drawn.add_column(head, no_wrap=not is_name, overflow="fold", justify="left" if is_name else "right")
    for cells, style in zip(zip(*(cells for _, cells in shown), strict=True), styles, strict=True):
        drawn.add_row(*map(Text, cells), style=style)
    return drawn


def _end(result: Result) -> Iterator[Text]:
    """The worth of the figures, the limits of the speed, and the line to paste."""
    if result.ended is None:
        yield Text("This result is partial.", "yellow")
    for sentence in result.disturbances:
        yield Text(sentence, "yellow")
    yield from map(Text, result.walls)
    if line := result.recommendation:
        yield from map(Text, gain(line))
        yield Text(line.line, "bold green")


def write(result: Result, folder: Path) -> None:
    """Write ``bench.md`` and its picture into ``folder``; where they cannot be written, say why."""
    try:
        atomic.write_text(folder / page.FILE, page.render(result))
        picture.draw(result, folder / picture.FILE)
    except (ImportError, OSError) as error:
        print(f"dqnspeed: {folder}: {page.FILE} and its picture cannot be written ({error}).", file=sys.stderr)
