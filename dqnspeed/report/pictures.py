"""Figures as PNG files, drawn by matplotlib."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from dqnspeed.report.figures import DASHES, Figure, Series
from dqnspeed.system import atomic

LEGEND_WIDTH, MAX_LEGEND_SERIES = 100, 6  # characters, and series for which the picture has room
CATEGORY_WIDTH = 32  # characters
LINE_STYLES = dict(zip(DASHES, ("-", "--", ":", "-."), strict=True))
MARKERS = {"points": "o", "censored": ">"}


def write_png(figure: Figure, path: Path) -> None:
    """Draw ``figure`` into the file ``path``.

    Raises:
        OSError: the file could not be written.
    """
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(8, 4.5), layout="constrained")
    axes, bar_ends = canvas.subplots(), dict.fromkeys(map(_wrapped, figure.categories), 0.0)
    for number, series in enumerate(figure.series):
        _draw(axes, series, number, bar_ends, figure.is_named(series))
    if figure.categories:
        canvas.set_figheight(max(3, 1.2 + 0.4 * len(figure.categories)))
        axes.set(xlabel=figure.y, ylabel=figure.x)
        axes.invert_yaxis()
        axes.set_xlim(left=min(0, axes.get_xlim()[0]))
    else:
        axes.set(xlabel=figure.x, ylabel=figure.y, xscale="log" if figure.log_x else "linear")
        if figure.bound is not None and figure.shows_bound:
            axes.axhline(figure.bound, color="gray", linewidth=0.8, linestyle="--")
        if figure.from_zero:
            axes.set_ylim(bottom=0)
    title = f"{figure.title}, {figure.bound_text}" if figure.bound_text else figure.title
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    if labels := axes.get_legend_handles_labels()[1]:
        canvas.set_figheight(canvas.get_figheight() + 0.15 * max(0, len(labels) - MAX_LEGEND_SERIES))
        canvas.legend(loc="outside lower left", frameon=False, fontsize=8)
    with atomic.replace(path) as partial:
        canvas.savefig(partial, dpi=120, format="png")


def _draw(axes: Any, series: Series, number: int, bar_ends: dict[str, float], is_named: bool) -> None:
    """Draw a series.

    Args:
        bar_ends: end of the last stacked bar of each category; empty if the figure has no categories.
        is_named: dots are named in a legend; curves and stacked bars always are.
    """
    colour, dash = series.look(number)
    label = textwrap.fill(series.name.replace("$", r"\$"), LEGEND_WIDTH)
    x: Any = series.x
    y: Any = series.y
    if bar_ends:
        x, y = series.y, [*map(_wrapped, series.x)]
    if series.kind in MARKERS:
        axes.scatter(x, y, s=24, color=colour, marker=MARKERS[series.kind], zorder=3, label=label if is_named else None)
    elif series.kind == "games":
        axes.scatter(x, y, s=4, alpha=0.35, color=colour, linewidths=0)
    elif series.kind == "bar" and series.rung is not None:
        axes.barh(y, x, color=colour, alpha=0.5)
    elif series.kind == "bar":
        axes.barh(y, x, left=[bar_ends[name] for name in y], color=colour, alpha=0.9, label=label)
        bar_ends |= {name: bar_ends[name] + width for name, width in zip(y, x, strict=True)}
    else:
        is_mean = series.kind == "mean"
        look = {"alpha": 1.0, "label": label} if is_mean else {"alpha": 0.35, "linewidth": 0.8}
        colour, marker = "gray" if series.rung is None else colour, "o" if len({*x}) == 1 else None
        axes.plot(x, y, color=colour, linestyle=LINE_STYLES[dash], marker=marker, **look)
        if series.low:
            axes.fill_between(x, series.low, series.high, color=colour, alpha=0.15, linewidth=0)


def _wrapped(name: object) -> str:
    return textwrap.fill(str(name).replace("$", r"\$"), CATEGORY_WIDTH)
