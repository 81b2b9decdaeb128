"""A result for people: tables in the terminal, and a page in Markdown."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dqnspeed.bench.pairs import interval
from dqnspeed.bench.result import Interval, Measurement, Recommendation, Result
from dqnspeed.config.changes import EXACT
from dqnspeed.config.schema import KINDS

PAGE = "bench.md"
# Groups of measurements in the order in which they are shown, and their titles.
TITLES = {
    "trainings": "Whole trainings at equal learner work",
    "check": "The recommended command, measured again and end to end",
    "envs": "Environments",
    "replay": "Replay",
    "acting": "Acting",
    "update": "Updates",
    "transfer": "Transfer to the device",
    "limits": "Limits of this machine",
}
RANKED = ("trainings", "check")  # by their gain over the baseline; other groups keep the order of measurement
RECOMMENDED, NOISE = "recommended", "within noise"
STYLES = {RECOMMENDED: "bold green", NOISE: "dim", "": ""}
MISSING = "–"
UNLIMITED = 10_000  # columns of a file or a pipe
GAP, NAME_WIDTH = 2, 24  # spaces between columns; least width of names before the last column is left out
ABOUT = """A ratio is the median over pairs of neighbouring slices, with a 95 % interval in brackets. An interval that
contains 1 is within noise. The interval of five pairs is their range, which covers 94 %. [bench.json](bench.json) has
every pair."""


def print_result(result: Result, console: Console | None = None) -> None:
    """Print ``result``, its recommended command last. A narrow terminal gets fewer columns, a pipe all of them."""
    console = console or Console()
    if not console.is_terminal:
        console.width = UNLIMITED
    _print_tables(result, console)
    for text in _conclusion(result):
        console.print(text, soft_wrap=True)


def page(result: Result) -> str:
    """The result in Markdown, with the tables of the terminal."""
    tables = Console(file=io.StringIO(), width=UNLIMITED, color_system=None)
    _print_tables(result, tables)
    found, here = result.recommendation, result.machine
    machine = [here.get("cpu"), f"{here.get('cores')} cores", f"{here.get('memory_gib')} GiB", here.get("gpu")]
    versions = ", ".join(f"{package} {version}" for package, version in result.versions.items())
    blocks = [
        "# Which of these pays here?",
        "" if result.ended else "**This result is partial.**",
        f"```bash\n{found.line}\n```\n\n" + "\n".join(gain(found)) if found else "",
        "\n".join(result.bottlenecks),
        f"```text\n{tables.file.getvalue().strip()}\n```",  # type: ignore[attr-defined]
        "## How this was measured",
        f"{', '.join(filter(None, machine))}; {here.get('platform')}.\n"
        f"{result.env}, `suite={result.suite}`, from {result.started} to {result.ended or 'an interruption'}, by",
        f"```bash\n{result.command}\n```",
        f"With {versions}; commit {result.commit or 'unknown'}.",
        "\n".join(f"- {sentence}" for sentence in result.disturbances),
        ABOUT,
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _print_tables(result: Result, console: Console) -> None:
    for group, rows in groups(result):
        console.print(Text(f"\n{TITLES[group]}", "bold"))
        console.print(_table([row for row in rows if row.error is None], result, console.width))
        for row in rows:
            if row.error is not None:
                console.print(Text(f"{row.name}: not measured: {row.error}", "red"))
    console.print()


def _conclusion(result: Result) -> Iterator[Text]:
    """How far to trust the figures, what limits the speed, and the command to paste."""
    if result.ended is None:
        yield Text("This result is partial.", "yellow")
    yield from (Text(sentence, "yellow") for sentence in result.disturbances)
    yield from map(Text, result.bottlenecks)
    if found := result.recommendation:
        yield from map(Text, gain(found))
        yield Text(found.line, "bold green")


def groups(result: Result) -> Iterator[tuple[str, list[Measurement]]]:
    """The groups with measurements, in the order in which both are shown."""
    for group in TITLES:
        rows = [row for row in result.measurements if row.group == group]
        if group in RANKED:
            rows.sort(key=lambda row: row.ratio.median if row.ratio else 1.0, reverse=True)
        if rows:
            yield group, rows


def _table(rows: list[Measurement], result: Result, width: int) -> Table:
    """Rows of figures, the most important columns first, without columns that are empty or do not fit."""
    units = {row.unit for row in rows}
    columns = {
        "": [row.name for row in rows],
        units.pop() if len(units) == 1 else "speed": [_speed(row, with_unit=bool(units)) for row in rows],
        "ratio": [times(row.ratio) for row in rows],
        "remark": [remark(row, result) for row in rows],
        "kind": [row.kind for row in rows] if any(row.kind != EXACT for row in rows) else [],
        "repeats": [str(len(row.pairs)) for row in rows],
    }
    columns = {name: cells for name, cells in columns.items() if set(cells) - {MISSING, ""}}
    widths = {name: GAP + max(map(len, [name, *cells])) for name, cells in columns.items() if name}
    while len(widths) > 1 and NAME_WIDTH + sum(widths.values()) > width:
        del columns[widths.popitem()[0]]
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name, no_wrap=bool(name), overflow="fold", justify="right" if name else "left")
    for row, *cells in zip(rows, *columns.values(), strict=True):
        table.add_row(*map(Text, cells), style=STYLES[remark(row, result)])
    return table


def _speed(row: Measurement, with_unit: bool) -> str:
    """The speed; with its interval, as in ``640 (621–655)``, if there is no ratio."""
    low, high = speed_interval(row)
    interval = "" if row.ratio or low == high else f" ({number(low)}–{number(high)})"
    return f"{number(row.value)}{interval}{f' {row.unit}' if with_unit else ''}"


def speed_interval(row: Measurement) -> tuple[float, float]:
    """The 95 % interval of a speed, computed from the ratio if there is one, because common noise cancels out there."""
    value, ratio = row.value or 0.0, row.ratio
    if ratio is not None and ratio.median:
        return value * ratio.low / ratio.median, value * ratio.high / ratio.median
    found = interval([value for _, value in row.pairs if value is not None])
    return (found.low, found.high) if found else (value, value)


def number(value: float | None) -> str:
    """Three digits, as in ``0.270``, ``61.3``, ``6,540`` and ``1.25 M``."""
    if value is None:
        return MISSING
    size, sign = next((one for one in ((1e12, " T"), (1e9, " G"), (1e6, " M")) if abs(value) >= one[0]), (1, ""))
    digits = f"{value / size:,.0f}" if abs(value) >= 100 * size else f"{value / size:#.3g}"
    return f"{digits}{sign}"


def times(interval: Interval | None) -> str:
    """A ratio with its interval, as in ``1.62× (1.55–1.70)``."""
    return MISSING if interval is None else f"{interval.median:.2f}× ({interval.low:.2f}–{interval.high:.2f})"


def remark(row: Measurement, result: Result) -> str:
    """A remark beside a figure: recommended, or within noise."""
    found = result.recommendation
    if found and row.group == "trainings" and set(row.overrides) == set(found.overrides):
        return RECOMMENDED
    return NOISE if row.within_noise else ""


def gain(found: Recommendation) -> list[str]:
    """Sentences on a recommended command: its gain, and the kinds of its changes."""
    if not found.overrides:
        return [found.sentence]
    by_kind = {kind: [override for override, of in found.kinds.items() if of == kind] for kind in KINDS}
    kinds = "; ".join(f"{kind}: {' '.join(overrides)}" for kind, overrides in by_kind.items() if overrides)
    expected = f"Expected {times(found.expected)} of the baseline's speed."
    return [f"{expected} {found.sentence}".rstrip(), f"{kinds.capitalize()}."]
