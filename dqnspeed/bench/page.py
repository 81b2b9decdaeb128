"""``bench.md``: a result as a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dqnspeed.bench import picture
from dqnspeed.bench.result import Result
from dqnspeed.bench.rows import FAILED, Section, columns, gain, sections

FILE = "bench.md"
ABOUT = (
    "A ratio is the median over pairs of neighbours, taken in turn, with a 95 % interval in brackets; an interval that",
    "holds 1 is within noise. Of four or five pairs it is their whole range, which has it in 88 to 94 % of cases.",
    "[bench.json](bench.json) has every pair.",
)


def render(result: Result) -> str:
    """The page in Markdown, with a link to the picture."""
    return "\n".join(_lines(result)) + "\n"


def _lines(result: Result) -> Iterator[str]:
    yield from ("# Which of these pays here?", "")
    if result.ended is None:
        yield from ("**This result is partial.**", "")
    if line := result.recommendation:
        yield from _command(line.line)
        yield from (*gain(line), "")
    yield from (f"![Speeds with 95 % intervals, grouped by piece]({picture.FILE})", "")
    yield from (*result.walls, "") if result.walls else ()
    for section in sections(result):
        yield from _section(section, result)
    yield from _measured(result)


def _command(line: str) -> Sequence[str]:
    return ("```bash", line, "```", "")


def _section(section: Section, result: Result) -> Iterator[str]:
    yield from (f"## {section.title}", "")
    table = columns(section, result)
    if section.measured:
        yield _row(heading for heading, _ in table)
        yield _row("---" if number == 0 else "---:" for number in range(len(table)))
        yield from map(_row, zip(*(cells for _, cells in table), strict=True))
        yield ""
    for one in section.failed:
        yield f"- {one.name}: {FAILED}: {one.error}"
    if section.failed:
        yield ""
    if section.floors:
        yield from (f"The most: {'; '.join(section.floors)}.", "")


def _measured(result: Result) -> Iterator[str]:
    """Where, when and with what."""
    here = result.machine
    where = [here.get("cpu"), f"{here.get('cores')} cores", f"{here.get('memory_gib')} GiB", here.get("gpu")]
    yield from ("## How this was measured", "")
    yield f"{', '.join(filter(None, where))}; {here.get('platform')}."
    until = result.ended or "an interruption"
    yield f"{result.env}, `suite={result.suite}`, from {result.started} to {until}, by"
    yield from ("", *_command(result.command))
    versions = ", ".join(f"{package} {version}" for package, version in result.versions.items())
    yield from (f"With {versions}; commit {result.commit or 'unknown'}.", "")
    yield from (f"- {sentence}" for sentence in result.disturbances)
    yield from ("", *ABOUT)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
