"""Figures as PNG files, drawn by matplotlib."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from dqnspeed.report.figures import DASHES, Figure, Series
from dqnspeed.system import atomic

LEGEND_WIDTH, MAX_LEGEND_LINES = 100, 6  # characters, and lines for which the picture has room
CATEGORY_WIDTH = 32  # characters
LINE_STYLES = dict(zip(DASHES, ("-", "--", ":", "-."), strict=True))
MARKERS = {"points": "o", "censored": ">"}


def write_png(figure: Figure, path: Path) -> None:
    """Draw ``figure`` into the file ``path``.

    Raises:
        OSError: the file could not be written.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    canvas, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    try:
        bar_ends = dict.fromkeys(map(_wrapped, figure.categories), 0.0)
        for number, series in enumerate(figure.series):
            if figure.categories:
                _draw_sideways(axes, series, number, bar_ends)
            else:
                _draw(axes, series, number)
        if figure.categories:
            canvas.set_size_inches(8, max(3, 1.2 + 0.4 * len(figure.categories)))
            axes.set(xlabel=figure.y, ylabel=figure.x)
            axes.invert_yaxis()
            axes.set_xlim(left=0)
        else:
            axes.set(xlabel=figure.x, ylabel=figure.y, xscale="log" if figure.log_x else "linear")
            if figure.bound is not None:
                _draw_bound(axes, figure)
            if figure.from_zero:
                axes.set_ylim(bottom=0)
        axes.set_title(figure.title, fontsize=10)
        axes.grid(alpha=0.3)
        _draw_legend(canvas, axes)
        with atomic.replace(path) as partial:
            canvas.savefig(partial, dpi=120, format="png")
    finally:
        plt.close(canvas)


def _draw_sideways(axes: Any, series: Series, number: int, bar_ends: dict[str, float]) -> None:
    """Draw bars or dots in categories; bars of a part of all rungs start at ``bar_ends``, where the last bars ended."""
    colour, _ = series.look(number)
    names = [_wrapped(name) for name in series.x]
    if series.kind in MARKERS:
        axes.scatter(series.y, names, s=24, color=colour, marker=MARKERS[series.kind], zorder=3)
    elif series.rung is None:
        left = [bar_ends[name] for name in names]
        axes.barh(names, series.y, left=left, color=colour, alpha=0.9, label=series.name)
        bar_ends |= {name: start + width for name, start, width in zip(names, left, series.y, strict=True)}
    else:
        axes.barh(names, series.y, color=colour, alpha=0.5)


def _draw(axes: Any, series: Series, number: int) -> None:
    colour, dash = series.look(number)
    line: dict[str, Any] = {"linestyle": LINE_STYLES[dash], "marker": "o" if len({*series.x}) == 1 else None}
    if series.kind in MARKERS:
        axes.scatter(series.x, series.y, s=24, color=colour, marker=MARKERS[series.kind], zorder=3)
    elif series.kind == "games":
        axes.scatter(series.x, series.y, s=4, alpha=0.35, color=colour, linewidths=0)
    elif series.kind == "seed":
        axes.plot(series.x, series.y, color=colour, linewidth=0.8, alpha=0.35, **line)
    else:
        colour = "gray" if series.rung is None else colour
        words = [series.name, series.text] if isinstance(series.text, str) else [series.name]
        label = ", ".join(dict.fromkeys(words)).replace("$", r"\$")
        axes.plot(series.x, series.y, color=colour, label=textwrap.fill(label, LEGEND_WIDTH), **line)
        if series.low:
            axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.15, linewidth=0)


def _draw_bound(axes: Any, figure: Figure) -> None:
    at, y = (axes.get_yaxis_transform(), figure.bound) if figure.shows_bound else (axes.transAxes, 1)
    if figure.shows_bound:
        axes.axhline(figure.bound, color="gray", linewidth=0.8, linestyle="--")
    axes.text(0, y, f" {figure.bound_text}", transform=at, color="gray", fontsize=8, va="bottom")


def _draw_legend(canvas: Any, axes: Any) -> None:
    """Put the legend below the plot, and make the picture higher if the legend is long."""
    _, labels = axes.get_legend_handles_labels()
    num_lines = sum(label.count("\n") + 1 for label in labels)
    canvas.set_figheight(canvas.get_figheight() + 0.15 * max(0, num_lines - MAX_LEGEND_LINES))
    if labels:
        canvas.legend(loc="outside lower left", frameon=False, fontsize=8)


def _wrapped(name: object) -> str:
    return textwrap.fill(str(name).replace("$", r"\$"), CATEGORY_WIDTH)
