"""``report.html``: one page with Plotly's plots, which needs no other file and no network."""

from __future__ import annotations

import base64
import json
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dqnspeed.report.contents import Report
from dqnspeed.report.figures import COLOURS, Figure, Series
from dqnspeed.report.runs import return_of
from dqnspeed.report.tables import escaped
from dqnspeed.system import atomic

HERE = Path(__file__).parent
MAX_EMBEDDED_VIDEO_BYTES = 400_000  # of all videos in the page; others are linked
GREY = "#8a8f98"
CATEGORY_WIDTH = 22  # characters, so that a phone has room for them
CATEGORY_PX, LINE_PX, AROUND_PX, LEGEND_PX = 30, 18, 90, 40  # heights in a sideways figure
TITLE_STANDOFF_PX = 8


def render_page(report: Report, folder: Path, refresh_s: float | None = None) -> str:
    """The page as HTML.

    Args:
        folder: links to videos are relative to this folder.
        refresh_s: seconds after which a browser loads the page again; ``None``: never.
    """
    import jinja2
    from plotly.offline import get_plotlyjs

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html").render(
        report=report,
        refresh_s=refresh_s,
        colours=COLOURS,
        videos=list(_videos(report, folder)),
        plotly=get_plotlyjs(),
        plots=_script_json([plotly_figure(figure) for figure in report.figures]),
        style=(HERE / "page.css").read_text(encoding="utf-8"),
        script=(HERE / "page.js").read_text(encoding="utf-8"),
    )


def _script_json(node: Any) -> str:
    """``node`` as JSON in which no text ends a ``<script>``; a number that is not finite is a gap."""
    text = json.dumps(atomic.nan_to_none(node), separators=(",", ":"))
    return text.replace("</", "<\\/").replace("<!--", "<\\u0021--")


def plotly_figure(figure: Figure) -> dict[str, Any]:
    """A figure as Plotly's data and layout, without the colours that depend on light and dark."""
    sideways, stacked = bool(figure.categories), figure.is_stacked
    x, y = (
        {"title": {"text": escaped(title), "standoff": TITLE_STANDOFF_PX}, "automargin": True}
        for title in (figure.x, figure.y)
    )
    y["rangemode"] = "tozero" if figure.from_zero else "normal"
    layout: dict[str, Any] = {
        "xaxis": y if sideways else x,
        "yaxis": x if sideways else y,
        "showlegend": figure.shows_legend,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        "barmode": "stack" if stacked else "overlay",
        "hovermode": "closest",
        "margin": {"l": 56, "r": 12, "t": 26, "b": 48},
    }
    if sideways:
        names = [_wrapped(name) for name in figure.categories]
        x |= {"type": "category", "autorange": "reversed", "categoryarray": names}
        category_px = max(CATEGORY_PX, *(LINE_PX * (name.count("<br>") + 1) for name in names))
        layout["height"] = AROUND_PX + category_px * len(names) + (LEGEND_PX if figure.shows_legend else 0)
    elif figure.log_x:
        x["type"] = "log"
    if figure.shows_bound:
        line = {"color": GREY, "width": 1, "dash": "dash"}
        ends = {"xref": "paper", "x0": 0, "x1": 1, "y0": figure.bound, "y1": figure.bound}
        layout["shapes"] = [{"type": "line", **ends, "line": line}]
    if figure.bound is not None:
        at = {"yref": "y", "y": figure.bound} if figure.shows_bound else {"yref": "paper", "y": 1}
        text = {"text": figure.bound_text, "showarrow": False, "font": {"color": GREY}}
        layout["annotations"] = [{**text, "xref": "paper", "x": 0, "xanchor": "left", "yanchor": "bottom", **at}]
    traces = [
        trace for number, series in enumerate(figure.series) for trace in _traces(figure, series, number, sideways)
    ]
    return {"name": figure.name, "data": traces, "layout": layout}


def _traces(figure: Figure, series: Series, number: int, sideways: bool) -> Iterator[dict[str, Any]]:
    """The spread around a mean, as one closed shape; and the points, line or bars."""
    colour, dash = series.look(number)
    rung = None if figure.own_legend else series.rung
    trace: dict[str, Any] = {"type": "scatter", "name": escaped(series.name), "meta": rung}
    trace |= {"legendgroup": trace["name"], "showlegend": figure.is_named(series)} if figure.own_legend else {}
    if series.low:
        outline = {"x": [*series.x, *reversed(series.x)], "y": [*series.high, *reversed(series.low)]}
        look = {"mode": "none", "fill": "toself", "fillcolor": f"{colour}26", "hoverinfo": "skip", "showlegend": False}
        yield {**trace, **outline, **look}
    x = [_wrapped(x) if isinstance(x, str) else x for x in series.x]
    trace |= {"x": series.y, "y": x, "orientation": "h"} if sideways else {"x": x, "y": series.y}
    trace["hovertemplate"] = _hover_template(figure, series, sideways)
    if isinstance(series.text, list):
        trace["text"] = [escaped(text) for text in series.text]
    if series.kind == "bar":
        trace |= {"type": "bar", "marker": {"color": colour}, "opacity": 0.9}
    elif series.kind == "games":
        trace |= {"mode": "markers", "marker": {"color": colour, "size": 4, "opacity": 0.35}}
    elif series.kind in ("points", "censored"):
        symbol = "circle" if series.kind == "points" else "triangle-right" if sideways else "triangle-up"
        marker = {"color": colour, "size": 10, "symbol": symbol, "line": {"width": 1, "color": "white"}}
        trace |= {"mode": "markers", "marker": marker}
    else:
        width, opacity = (1, 0.4) if series.kind == "seed" else (2.5, 1)
        line = {"color": GREY if series.rung is None else colour, "width": width, "dash": dash}
        mode = "lines+markers" if len({*series.x}) == 1 else "lines"
        trace |= {"mode": mode, "line": line, "opacity": opacity}
    yield trace


def _hover_template(figure: Figure, series: Series, sideways: bool) -> str:
    """Rung, value, ``x`` and seed of a point."""
    value, place = ("x", "y") if sideways else ("y", "x")
    at = f" at %{{{place}}} {escaped(figure.x)}" if figure.x else ""
    if series.rung is None and series.kind == "bar":
        at = "<br>%{y}"
    text = "%{text}" if isinstance(series.text, list) else escaped(series.text)
    text = "" if series.text == series.name else f"<br>{text}"
    return f"<b>%{{fullData.name}}</b><br>%{{{value}:,.5~r}} {figure.y}{at}{text}<extra></extra>"


def _wrapped(name: str) -> str:
    lines = textwrap.wrap(name, CATEGORY_WIDTH, break_long_words=False, break_on_hyphens=False)
    return "<br>".join(map(escaped, lines))


def _videos(report: Report, folder: Path) -> Iterator[dict[str, str]]:
    """The best video of each rung: within the page while there is room, else as a link."""
    room = MAX_EMBEDDED_VIDEO_BYTES
    for rung in report.rungs:
        videos = [(return_of(run.best_video), run.best_video, run.seed) for run in rung.runs if run.best_video]
        if not videos:
            continue
        game_return, path, seed = max(videos)
        try:
            size = path.stat().st_size
            data = base64.b64encode(path.read_bytes()).decode() if size <= room else ""
        except OSError:
            continue
        room -= size if data else 0
        yield {
            "caption": f"{rung.name}, seed {seed}: a game with a return of {game_return:g}",
            "data": data and f"data:video/mp4;base64,{data}",
            "link": os.path.relpath(path, folder),
        }
