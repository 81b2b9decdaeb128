"""The picture of a result: bars with 95 % intervals, grouped by piece."""

from __future__ import annotations

import textwrap
from pathlib import Path

from dqnspeed.bench.result import Interval, Result
from dqnspeed.bench.rows import NOISE, RECOMMENDED, ends, number, remark, sections, times
from dqnspeed.system import atomic

FILE = "bench.png"
COLORS = {RECOMMENDED: "#00796b", NOISE: "#dbe3ea", "": "#8aa5bf"}  # of different brightness, too
WIDTH, BAR, TITLE = 10.0, 0.3, 0.45  # in inches
NAME = 56  # letters of a line of a name


def draw(result: Result, path: Path) -> None:
    """Draw ``result`` into ``path``; raises :class:`OSError`. Needs matplotlib."""
    from matplotlib.figure import Figure

    groups = [  # what has another unit has another scale
        (section, unit, [one for one in section.measured if one.unit == unit])
        for section in sections(result, but=("floors",))
        for unit in dict.fromkeys(one.unit for one in section.measured)
    ]
    counts = [len(bars) for *_, bars in groups] or [1]
    figure = Figure(figsize=(WIDTH, TITLE * (2 + len(counts)) + BAR * sum(counts)), layout="constrained")
    where = f"{result.env} on {result.machine.get('gpu') or result.machine.get('cpu')}"
    figure.suptitle(f"{where}; green: {RECOMMENDED}, pale: {NOISE}", x=0.01, ha="left")
    parts = figure.subplots(len(counts), squeeze=False, height_ratios=counts).flat
    for (section, unit, bars), axes in zip(groups, parts, strict=False):
        lengths = [Interval(one.value or 0.0, *ends(one)) for one in bars]
        if section.is_ranked:  # their own load hides nothing then
            lengths = [one.ratio or Interval(1.0, 1.0, 1.0) for one in bars]
        axes.set_title(f"{section.title} ({unit}{', bars: ratios' if section.is_ranked else ''})", loc="left", size=10)
        drawn = axes.barh(
            range(len(bars)), [length.median for length in lengths],
            xerr=[
                [length.median - length.low for length in lengths],
                [length.high - length.median for length in lengths],
            ],
            color=[COLORS[remark(one, result)] for one in bars], ecolor="#656d76",
        )  # fmt: skip
        figures = [f"{number(one.value)}{f'   {times(one.ratio)}' if one.ratio else ''}" for one in bars]
        axes.bar_label(drawn, figures, padding=4, size=8)
        axes.set_yticks(
            range(len(bars)), [textwrap.fill(one.name, NAME, break_on_hyphens=False) for one in bars], size=8
        )
        axes.set_ylim(len(bars) - 0.5, -0.5)
        axes.margins(x=0.4)
        axes.get_xaxis().set_visible(False)
        axes.spines[:].set_visible(False)
    with atomic.replacing(path) as partial:
        figure.savefig(partial, format="png", dpi=100)
