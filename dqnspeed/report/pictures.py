"""Figures as pictures, drawn by matplotlib."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from dqnspeed.report.figures import COLOURS, DASHES, Figure, Series
from dqnspeed.system import atomic

LEGEND_WIDTH, LEGEND_LINES = 80, 6  # characters, and lines that fit into the plot
PLACE_WIDTH = 32  # characters of the name of a place
MATPLOTLIB_DASHES = dict(zip(DASHES, ("-", "--", ":", "-."), strict=True))
MARKERS = {"points": "o", "censored": ">"}


def draw(figure: Figure, path: Path) -> None:
    """Write a picture as PNG.

    Raises:
        OSError: it could not be written.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    canvas, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    try:
        sideways = bool(figure.places)
        if sideways:
            canvas.set_size_inches(8, max(3, 1.2 + 0.4 * len(figure.places)))
        filled = dict.fromkeys(map(_wrapped, figure.places), 0.0)  # of stacked bars
        for number, series in enumerate(figure.series):
            _draw(axes, series, number, sideways, filled)
        if sideways:
            axes.set(xlabel=figure.y, ylabel=figure.x)
            axes.invert_yaxis()
            axes.set_xlim(left=0)
        else:
            axes.set(xlabel=figure.x, ylabel=figure.y, xscale="log" if figure.log_x else "linear")
            if figure.bound is not None:
                at, y = axes.transAxes, 1.0
                if figure.shows_bound:
                    at, y = axes.get_yaxis_transform(), figure.bound
                    axes.axhline(y, color="gray", linewidth=0.8, linestyle="--")
                axes.text(0, y, f" {figure.bound_text}", transform=at, color="gray", fontsize=8, va="bottom")
            if figure.from_zero:
                axes.set_ylim(bottom=0)
        axes.set_title(figure.title, fontsize=10)
        axes.grid(alpha=0.3)
        _legend(canvas, axes, sideways)
        with atomic.replace(path) as partial:
            canvas.savefig(partial, dpi=120, format="png")
    finally:
        plt.close(canvas)


def _draw(axes: Any, series: Series, number: int, sideways: bool, filled: dict[str, float]) -> None:
    place = number if series.rung is None else series.rung
    colour = COLOURS[place % len(COLOURS)]
    dash = MATPLOTLIB_DASHES[DASHES[place // len(COLOURS) % len(DASHES)]]
    said = [series.name] + ([series.text] if series.kind == "mean" and isinstance(series.text, str) else [])
    said = list(dict.fromkeys(said))
    label = textwrap.fill(", ".join(said).replace("$", r"\$"), LEGEND_WIDTH)
    point = "o" if len({*series.x}) == 1 else None  # a line through one point would not be seen
    if series.kind == "bar":
        names = [_wrapped(name) for name in series.x]
        left = [filled[name] for name in names]
        named = label if series.rung is None else None
        axes.barh(names, series.y, left=left, color=colour, alpha=0.9 if series.rung is None else 0.5, label=named)
        if series.rung is None:
            filled.update({name: filled[name] + value for name, value in zip(names, series.y, strict=True)})
    elif series.kind in MARKERS:
        x, y = (series.y, [_wrapped(name) for name in series.x]) if sideways else (series.x, series.y)
        axes.scatter(x, y, s=24, color=colour, marker=MARKERS[series.kind], zorder=3)
    elif series.kind == "games":
        axes.scatter(series.x, series.y, s=4, alpha=0.35, color=colour, linewidths=0)
    elif series.kind == "seed":
        axes.plot(series.x, series.y, color=colour, linewidth=0.8, alpha=0.35, linestyle=dash, marker=point)
    else:
        colour = "gray" if series.rung is None else colour
        axes.plot(series.x, series.y, color=colour, label=label, linestyle=dash, marker=point)
        if series.low:
            axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.15, linewidth=0)


def _wrapped(name: object) -> str:
    return textwrap.fill(str(name).replace("$", r"\$"), PLACE_WIDTH)


def _legend(canvas: Any, axes: Any, sideways: bool) -> None:
    handles, labels = axes.get_legend_handles_labels()
    lines = sum(label.count("\n") + 1 for label in labels)
    if lines > LEGEND_LINES:  # it would hide the curves
        canvas.set_size_inches(8, max(canvas.get_figheight(), 4.5 + 0.15 * lines))
        canvas.legend(handles, labels, loc="outside lower left", frameon=False, fontsize=7)
    elif lines and sideways:
        canvas.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8)
    elif lines:
        axes.legend(frameon=False, fontsize=8)
