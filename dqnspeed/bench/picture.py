"""The picture of a result: bars with 95 % intervals, grouped by piece."""

from __future__ import annotations

import textwrap
from pathlib import Path

from dqnspeed.bench.report import NOISE, RANKED, RECOMMENDED, TITLES, groups, number, remark, speed_interval, times
from dqnspeed.bench.result import Interval, Result
from dqnspeed.system import atomic

COLORS = {RECOMMENDED: "#00796b", NOISE: "#dbe3ea", "": "#8aa5bf"}  # differ in brightness, too
WIDTH, BAR_HEIGHT, TITLE_HEIGHT = 10.0, 0.3, 0.45  # inches
NAME_LENGTH = 56  # letters in a line of a name


def draw(result: Result, path: Path) -> None:
    """Draw ``result`` into ``path``; raises :class:`OSError`, and :class:`ImportError` without Matplotlib."""
    from matplotlib.figure import Figure

    measured = [(group, [row for row in rows if row.error is None]) for group, rows in groups(result)]
    charts = [  # each unit has its own scale
        (group, unit, [row for row in rows if row.unit == unit])
        for group, rows in measured
        if group != "limits"
        for unit in dict.fromkeys(row.unit for row in rows)
    ]
    counts = [len(rows) for *_, rows in charts] or [1]
    height = TITLE_HEIGHT * (2 + len(counts)) + BAR_HEIGHT * sum(counts)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    machine = result.machine.get("gpu") or result.machine.get("cpu")
    title = f"{result.env} on {machine}; green: {RECOMMENDED}, pale: {NOISE}"
    figure.suptitle(title, x=0.01, ha="left")
    all_axes = figure.subplots(len(counts), squeeze=False, height_ratios=counts).flat
    for (group, unit, rows), axes in zip(charts, all_axes, strict=False):
        bars = [Interval(row.value or 0.0, *speed_interval(row)) for row in rows]
        if group in RANKED:  # ratios are free of the noise that both sides share
            bars = [row.ratio or Interval(1.0, 1.0, 1.0) for row in rows]
        axes.set_title(f"{TITLES[group]} ({unit}{', bars: ratios' if group in RANKED else ''})", loc="left", size=10)
        drawn = axes.barh(
            range(len(rows)), [bar.median for bar in bars], ecolor="#656d76",
            xerr=[[bar.median - bar.low for bar in bars], [bar.high - bar.median for bar in bars]],
            color=[COLORS[remark(row, result)] for row in rows],
        )  # fmt: skip
        figures = [f"{number(row.value)}   {times(row.ratio) if row.ratio else ''}".rstrip() for row in rows]
        axes.bar_label(drawn, figures, padding=4, size=8)
        names = [textwrap.fill(row.name, NAME_LENGTH, break_on_hyphens=False) for row in rows]
        axes.set_yticks(range(len(rows)), names, size=8)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.margins(x=0.4)
        axes.get_xaxis().set_visible(False)
        axes.spines[:].set_visible(False)
    with atomic.replace(path) as partial:
        figure.savefig(partial, format="png", dpi=100)
