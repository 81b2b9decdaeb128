"""The picture of a result: bars with 95 % intervals, grouped by piece, for a light and for a dark page."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dqnspeed.bench.result import Interval, Measurement, Result
from dqnspeed.bench.rows import FAILED, NOISE, RECOMMENDED, Section, ends, number, remark, sections
from dqnspeed.system import atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Theme:
    """The file of a picture and its colours, which differ in brightness too, for those who see few colours."""

    file: str
    page: str
    text: str
    quiet: str  # less important text and lines
    bar: str
    noise: str  # bars within noise
    best: str  # the recommendation
    failed: str


LIGHT = Theme("bench.png", "#ffffff", "#1b1f24", "#656d76", "#8aa5bf", "#dbe3ea", "#00796b", "#b3261e")
DARK = Theme("bench_dark.png", "#16191d", "#e8eaed", "#9aa4ae", "#5d7c99", "#2f3b46", "#4db6ac", "#f28b82")

# In inches; a phone shows the width of the picture on its own.
WIDTH, MARGIN, LINE, GAP, BAR = 5.0, 0.2, 0.17, 0.1, 0.15
PLOT = WIDTH - 2 * MARGIN
NAMES, SHORT = 1.75, 24  # width of the column of names, and the most characters of a name in it
SHORTEST = 1.0  # width of the longest bar at least
LETTER = 0.068  # of text of this size, on average
LOGARITHMIC = 25  # ratio of the longest to the shortest bar from which lengths are logarithmic
MOST = 16  # bars of a group; more are for the page
SIZE = 8.5  # of text, in points


def draw(result: Result, path: Path, theme: Theme) -> None:
    """Draw ``result`` into ``path``; raises :class:`OSError`. Needs matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 1), facecolor=theme.page)
    axes = figure.add_axes((0, 0, 1, 1))
    sheet = Sheet(axes, theme)
    sheet.head(result)
    for section in sections(result, but=("floors",)):
        sheet.section(section, result)
    height = sheet.y + MARGIN
    figure.set_size_inches(WIDTH, height)
    axes.set(xlim=(0, WIDTH), ylim=(height, 0))
    axes.axis("off")
    with atomic.replacing(path) as partial:
        figure.savefig(partial, format="png", dpi=180)


class Sheet:
    """The picture, filled from top to bottom; lengths are inches, and ``y`` is where the next line begins."""

    def __init__(self, axes: Axes, theme: Theme):
        self.y = MARGIN
        self._axes, self._theme = axes, theme

    def head(self, result: Result) -> None:
        """What was measured where, the recommended line, and what the signs mean."""
        here, theme = result.machine, self._theme
        self._write("Which of these pays here?", size=15, weight="bold")
        where = ", ".join(filter(None, [here.get("cpu"), f"{here.get('cores')} cores", here.get("gpu")]))
        partial = ", partial" if result.ended is None else ""
        self.y += GAP
        self._write(f"{where}; {result.env}, {result.started[:10]}, suite={result.suite}{partial}", color=theme.quiet)
        if line := result.recommendation:
            self.y += GAP
            self._write(line.line, color=theme.best, family="monospace", weight="bold", indent="    ")
            checked = f", checked {line.measured.median:.2f}×" if line.measured else ", not checked"
            expected = f"expected {line.expected.median:.2f}× of the baseline{checked}"
            self._write(expected if line.overrides else line.sentence, color=theme.best)
        self.y += GAP
        self._legend({remark(one, result) for one in result.measurements})

    def section(self, section: Section, result: Result) -> None:
        """A bar for each measurement, those of a unit in one scale."""
        self.y += 2 * GAP
        self._line((MARGIN, WIDTH - MARGIN), (self.y, self.y), color=self._theme.quiet, linewidth=0.6)
        self.y += GAP
        shown = section.measured[:MOST]
        shown += [one for one in section.measured[MOST:] if remark(one, result) == RECOMMENDED]
        units = {one.unit for one in shown}
        figures = [_figure(one, not section.unit) for one in shown]
        room = PLOT - GAP - LETTER * max(map(len, figures), default=0)
        beside = all(len(one.name) <= SHORT for one in shown) and room >= NAMES + SHORTEST
        left = NAMES if beside else 0.0
        room = max(SHORTEST, room - left)
        bars = [Bar(one, section.is_ranked) for one in shown]
        scales = {unit: Scale([bar for bar in bars if bar.one.unit == unit], room) for unit in units}
        logarithmic = any(scale.logarithmic for scale in scales.values())
        lengths = "the bars are ratios" if section.is_ranked else ""
        unit = ", ".join(filter(None, [section.unit, lengths, "logarithmic" if logarithmic else ""]))
        self._write(f"{section.title}{unit and f' ({unit})'}", size=10, weight="bold")
        for bar, figure in zip(bars, figures, strict=True):
            self._bar(bar, left, scales[bar.one.unit], figure, remark(bar.one, result))
        if more := len(section.measured) - len(shown):
            self._write(f"and {more} more, in bench.md", color=self._theme.quiet)
        for one in section.failed:
            self.y += GAP / 2
            self._write(f"{one.name}: {FAILED}: {one.error}", color=self._theme.failed)

    def _bar(self, bar: Bar, left: float, scale: Scale, figure: str, note: str) -> None:
        """A name, and beside it (below it if ``left`` is 0) the bar, its interval, reference and figure."""
        theme, best, name = self._theme, note == RECOMMENDED, bar.one.name
        color = {RECOMMENDED: theme.best, NOISE: theme.noise}.get(note, theme.bar)
        ink = {RECOMMENDED: theme.best, NOISE: theme.quiet}.get(note, theme.text)
        self.y += GAP
        if not left:
            self._write(f"{'★ ' * best}{name}", color=ink, weight="bold" if best else "normal")
        middle, start = self.y + LINE / 2, MARGIN + left
        if left:
            self._say(MARGIN, middle, name, ink)
        self.y += LINE
        end, low, high, mark = (start + scale(length) for length in (bar.length, bar.low, bar.high, bar.reference))
        self._axes.barh(middle, end - start, height=BAR, left=start, color=color)
        if bar.reference:
            self._line((mark, mark), (middle - BAR * 0.7, middle + BAR * 0.7), linestyle=":")
        if high > low:
            self._line((low, high), (middle, middle), marker="|", markersize=4)
        right = max(end, high, mark)
        self._say(right + GAP, middle, figure, ink)

    def _legend(self, remarks: Collection[str]) -> None:
        theme, x, middle = self._theme, MARGIN, self.y + LINE / 2
        for color, meaning in ((theme.best, RECOMMENDED), (theme.noise, NOISE)):
            if meaning not in remarks:
                continue
            self._axes.barh(middle, 0.2, height=BAR, left=x, color=color)
            self._say(x + 0.26, middle, meaning, theme.quiet)
            x += 1.3
        self._line((x, x + 0.2), (middle, middle), marker="|", markersize=4)
        self._say(x + 0.26, middle, "95 % interval", theme.quiet)
        x += 1.3
        self._line((x, x), (middle - BAR * 0.7, middle + BAR * 0.7), linestyle=":")
        self._say(x + GAP, middle, "reference", theme.quiet)
        self.y += LINE

    def _line(self, x: tuple[float, float], y: tuple[float, float], **style: Any) -> None:
        self._axes.plot(x, y, **{"color": self._theme.text, "linewidth": 0.9, **style})

    def _say(self, x: float, middle: float, text: str, color: str) -> None:
        self._axes.text(x, middle, text, size=SIZE, va="center_baseline", color=color, parse_math=False)

    def _write(
        self, text: str, *, size: float = SIZE, indent: str = "", color: str | None = None, **style: Any
    ) -> None:
        """Lines of text, broken where the picture ends."""
        share = 0.61 if style.get("family") == "monospace" else 0.57  # of a letter's width in its size, on average
        lines = textwrap.wrap(text, int(PLOT * 72 / (size * share)), subsequent_indent=indent, break_on_hyphens=False)
        self._axes.text(
            MARGIN, self.y, "\n".join(lines), size=size, va="top", color=color or self._theme.text, parse_math=False,
            linespacing=1.2, **style,
        )  # fmt: skip
        self.y += len(lines) * size * LINE / SIZE


class Bar:
    """What is drawn of ``one``: its speed, or its gain where all have one reference, whose own load then hides nothing.

    Attributes:
        length, low, high: with the 95 % interval; ``reference``: 0 if there is none.
    """

    def __init__(self, one: Measurement, by_gain: bool):
        self.one = one
        self.length, self.reference = one.value or 0.0, one.reference or 0.0
        self.low, self.high = ends(one)
        if by_gain:
            gain = one.ratio or Interval(1.0, 1.0, 1.0)
            self.length, self.low, self.high, self.reference = gain.median, gain.low, gain.high, 1.0


class Scale:
    """Lengths in inches of bars of one unit, the longest ``room``; logarithmic if the least was not seen else."""

    def __init__(self, bars: Sequence[Bar], room: float):
        values = [value for bar in bars for value in (bar.length, bar.low, bar.high, bar.reference) if value]
        self._least, self._most, self._room = min(values, default=1.0), max(values, default=1.0), room
        self.logarithmic = self._most > LOGARITHMIC * self._least

    def __call__(self, value: float) -> float:
        share = max(0.0, value / self._most)
        if self.logarithmic and share:  # the least gets a tenth
            share = 1 + 0.9 * math.log(share) / math.log(self._most / self._least)
        return max(0.0, share) * self._room


def _figure(one: Measurement, with_unit: bool) -> str:
    """What stands beside a bar."""
    speed = f"{number(one.value)} {one.unit}" if with_unit else number(one.value)
    ratio = f"{one.ratio.median:.2f}×" if one.ratio else ""
    return "   ".join(filter(None, [speed, ratio, NOISE if one.within_noise else ""]))
