"""The picture of a result: bars with 95 % intervals, grouped by piece, for a light and for a dark page."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dqnspeed.bench.result import Measurement, Result
from dqnspeed.bench.rows import FAILED, NOISE, RECOMMENDED, Section, label, number, remark, sections
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
NAMES, SHORT = 1.75, 26  # width of the column of names, and the most characters of a name in it
FIGURES = 1.75  # room for the figures beside the longest bar
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
    for section in sections(result):
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
        partial = "" if result.complete else ", partial"
        self.y += GAP
        self._write(f"{where}; {result.env}, {result.started[:10]}, suite={result.suite}{partial}", color=theme.quiet)
        if line := result.recommendation:
            self.y += GAP
            self._write(line.line, color=theme.best, family="monospace", weight="bold", indent="    ")
            checked = f", checked {line.measured.median:.2f}×" if line.measured else ", not checked"
            self._write(f"expected {line.expected.median:.2f}× of the baseline{checked}", color=theme.best)
        self.y += GAP
        self._legend()

    def section(self, section: Section, result: Result) -> None:
        """A bar for each measurement, in one scale."""
        self.y += 2 * GAP
        self._line((MARGIN, WIDTH - MARGIN), (self.y, self.y), color=self._theme.quiet, linewidth=0.6)
        self.y += GAP
        shown = section.measured[:MOST]
        left = NAMES if all(len(label(one)) <= SHORT for one in shown) else 0.0
        lengths = [length for one in shown for length in (*_ends(one), one.reference) if length]
        scale = Scale(lengths, PLOT - left - FIGURES)
        unit = ", ".join(filter(None, [section.unit, "logarithmic" if scale.logarithmic else ""]))
        self._write(f"{section.title}{unit and f' ({unit})'}", size=10, weight="bold")
        for one in shown:
            self._bar(one, left, scale, remark(one, result), "" if section.unit else one.unit)
        if more := len(section.measured) - len(shown):
            self._write(f"and {more} more, in bench.md", color=self._theme.quiet)
        for one in section.failed:
            self.y += GAP / 2
            self._write(f"{label(one)}: {FAILED}: {one.error}", color=self._theme.failed)

    def _bar(self, one: Measurement, left: float, scale: Scale, note: str, unit: str) -> None:
        """A name, and beside it (below it if ``left`` is 0) the bar, its interval, reference and figure."""
        theme, best = self._theme, note == RECOMMENDED
        color = {RECOMMENDED: theme.best, NOISE: theme.noise}.get(note, theme.bar)
        ink = {RECOMMENDED: theme.best, NOISE: theme.quiet}.get(note, theme.text)
        self.y += GAP
        begin = self.y
        self._write(f"{'★ ' * best}{label(one)}", color=ink, weight="bold" if best else "normal")
        if not left:
            begin = self.y
            self.y += LINE
        middle, start = begin + LINE / 2, MARGIN + left
        low, high = (start + scale(end) for end in _ends(one))
        length = scale(one.value or 0.0)
        self._axes.barh(middle, length, height=BAR, left=start, color=color)
        if one.reference:
            at = start + scale(one.reference)
            self._line((at, at), (middle - BAR * 0.7, middle + BAR * 0.7), linestyle=":")
        if high > low:
            self._line((low, high), (middle, middle), marker="|", markersize=4)
        figure = " ".join(filter(None, [number(one.value), unit]))
        ratio = f"{one.ratio.median:.2f}×" if one.ratio else ""
        right = max(high, start + length, start + scale(one.reference or 0.0))
        self._say(right + GAP, middle, "   ".join(filter(None, [figure, ratio, note])), ink)

    def _legend(self) -> None:
        theme, x, middle = self._theme, MARGIN, self.y + LINE / 2
        for color, meaning in ((theme.best, RECOMMENDED), (theme.noise, NOISE)):
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


class Scale:
    """Lengths in inches of bars for ``values``, the longest ``room``; logarithmic if the least was not seen else."""

    def __init__(self, values: list[float], room: float):
        self._least, self._most, self._room = min(values, default=1.0), max(values, default=1.0), room
        self.logarithmic = self._most > LOGARITHMIC * self._least

    def __call__(self, value: float) -> float:
        share = max(0.0, value / self._most)
        if self.logarithmic and share:  # the least gets a tenth
            share = 1 + 0.9 * math.log(share) / math.log(self._most / self._least)
        return max(0.0, share) * self._room


def _ends(one: Measurement) -> tuple[float, float]:
    """The interval of a value, from that of its ratio, since the pair moves together."""
    value = one.value or 0.0
    if one.ratio is None or not one.ratio.median:
        return value, value
    return value * one.ratio.low / one.ratio.median, value * one.ratio.high / one.ratio.median
