"""``report.html``: a page that needs no other file and asks for none, with plots of Plotly's."""

from __future__ import annotations

import base64
import html
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dqnspeed.report.contents import Report
from dqnspeed.report.figures import COLOURS, DASHES, Figure, Series
from dqnspeed.report.runs import return_of
from dqnspeed.system import atomic

HERE = Path(__file__).parent
VIDEO_BYTES = 400_000  # of films within the page, together; others are linked
GREY = "#8a8f98"
PLACE_PX, LINE_PX, AROUND_PX = 30, 18, 90  # heights: a place of a sideways figure, a line of its name, the rest
STANDOFF_PX, ABOVE_PX = 8, 26  # from an axis to its title; a margin for a line of text and the toolbar


def page(report: Report, folder: Path) -> str:
    """The page; links go out from ``folder``."""
    import jinja2
    from plotly.offline import get_plotlyjs

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html").render(
        report=report,
        colours=COLOURS,
        videos=list(_videos(report, folder)),
        plotly=get_plotlyjs(),
        plots=_script_json([_plot(figure) for figure in report.figures]),
        style=(HERE / "page.css").read_text(encoding="utf-8"),
        script=(HERE / "page.js").read_text(encoding="utf-8"),
    )


def _script_json(node: Any) -> str:
    """JSON that can stand in a ``<script>``: no text in it ends that. A number that is not finite is a gap."""
    return (
        json.dumps(atomic.nan_to_none(node), separators=(",", ":")).replace("</", "<\\/").replace("<!--", "<\\u0021--")
    )


def _plot(figure: Figure) -> dict[str, Any]:
    """A figure as Plotly's data and layout, without the colours that depend on light and dark."""
    sideways = bool(figure.places)
    stacked = sideways and all(series.rung is None for series in figure.series)
    place: dict[str, Any] = {"title": {"text": _escaped(figure.x), "standoff": STANDOFF_PX}, "automargin": True}
    value: dict[str, Any] = {"title": {"text": _escaped(figure.y), "standoff": STANDOFF_PX}, "automargin": True}
    if figure.from_zero:
        value["rangemode"] = "tozero"
    if figure.log_x:
        place["type"] = "log"
    if sideways:
        place |= {"type": "category", "autorange": "reversed", "categoryarray": [_wrapped(x) for x in figure.places]}
    layout: dict[str, Any] = {
        "xaxis": value if sideways else place,
        "yaxis": place if sideways else value,
        "showlegend": stacked and len(figure.series) > 1,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        "barmode": "stack" if stacked else "overlay",
        "hovermode": "closest",
        "margin": {"l": 56, "r": 12, "t": ABOVE_PX, "b": 48},
    }
    if sideways:
        lines = max(_wrapped(place).count("<br>") + 1 for place in figure.places)
        layout["height"] = AROUND_PX + max(PLACE_PX, LINE_PX * lines) * len(figure.places) + (40 if stacked else 0)
    if figure.shows_bound:
        layout["shapes"] = [
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": figure.bound, "y1": figure.bound,
             "line": {"color": GREY, "width": 1, "dash": "dash"}}
        ]  # fmt: skip
    if figure.bound is not None:
        at = {"yref": "y", "y": figure.bound} if figure.shows_bound else {"yref": "paper", "y": 1}
        layout["annotations"] = [
            {"text": figure.bound_text, "xref": "paper", "x": 0, "xanchor": "left", "yanchor": "bottom",
             "showarrow": False, "font": {"color": GREY}, **at}
        ]  # fmt: skip
    traces = [
        trace
        for number, series in enumerate(figure.series)
        for trace in (*_band(series), _trace(figure, series, number, sideways))
    ]
    return {"name": figure.name, "data": traces, "layout": layout}


def _trace(figure: Figure, series: Series, number: int, sideways: bool) -> dict[str, Any]:
    colour, dash = _look(number if series.rung is None else series.rung)
    if series.rung is None and series.kind == "mean":
        colour = GREY
    text = series.text if isinstance(series.text, list) else [series.text] * len(series.y)
    trace: dict[str, Any] = {
        "name": _escaped(series.name),
        "meta": series.rung,
        "x": [_wrapped(x) if isinstance(x, str) else x for x in series.x],
        "y": series.y,
        "hovertemplate": _hover(figure, series, sideways),
        **({"text": [_escaped(one) for one in text]} if isinstance(series.text, list) else {}),
    }
    if series.kind == "bar":
        trace |= {"type": "bar", "marker": {"color": colour}, "opacity": 0.9}
    elif series.kind == "games":
        trace |= {"type": "scatter", "mode": "markers", "marker": {"color": colour, "size": 4, "opacity": 0.35}}
    elif series.kind in ("points", "censored"):
        symbol = "circle" if series.kind == "points" else "triangle-right" if sideways else "triangle-up"
        marker = {"color": colour, "size": 10, "symbol": symbol, "line": {"width": 1, "color": "white"}}
        trace |= {"type": "scatter", "mode": "markers", "marker": marker}
    else:
        width, opacity = (1, 0.4) if series.kind == "seed" else (2.5, 1)
        line = {"color": colour, "width": width, "dash": dash}
        mode = "lines+markers" if len({*series.x}) == 1 else "lines"
        trace |= {"type": "scatter", "mode": mode, "line": line, "opacity": opacity}
    if sideways:
        trace["x"], trace["y"] = trace["y"], trace["x"]
        trace["orientation"] = "h"
    return trace


def _band(series: Series) -> Iterator[dict[str, Any]]:
    """The spread around a mean, as one closed shape."""
    if series.low:
        colour, _ = _look(series.rung or 0)
        yield {
            "type": "scatter", "mode": "none", "name": _escaped(series.name), "meta": series.rung,
            "x": [*series.x, *reversed(series.x)], "y": [*series.high, *reversed(series.low)],
            "fill": "toself", "fillcolor": f"{colour}26", "hoverinfo": "skip",
        }  # fmt: skip


def _hover(figure: Figure, series: Series, sideways: bool) -> str:
    """What a point says: rung, value, place, and which seed."""
    value, place = ("x", "y") if sideways else ("y", "x")
    at = f" at %{{{place}}} {_escaped(figure.x)}" if figure.x else ""
    if series.rung is None and series.kind == "bar":
        at = "<br>%{y}"
    said = "<br>%{text}" if isinstance(series.text, list) else f"<br>{_escaped(series.text)}"
    said = "" if series.text == series.name else said
    return f"<b>%{{fullData.name}}</b><br>%{{{value}:,.5~r}} {figure.y}{at}{said}<extra></extra>"


def _escaped(text: str) -> str:
    """For Plotly, which knows no entity of a quotation mark."""
    return html.escape(text, quote=False)


def _look(rung: int) -> tuple[str, str]:
    return COLOURS[rung % len(COLOURS)], DASHES[rung // len(COLOURS) % len(DASHES)]


def _wrapped(name: str) -> str:
    """A name in lines that a phone has room for."""
    lines = [""]
    for word in name.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        lines = [*lines[:-1], longer] if len(longer) <= 22 or not lines[-1] else [*lines, word]
    return "<br>".join(map(_escaped, lines))


def _videos(report: Report, folder: Path) -> Iterator[dict[str, str]]:
    """The best film of each rung: within the page while there is room, else as a link."""
    room = VIDEO_BYTES
    for rung in report.rungs:
        films = [(run, run.best_video) for run in rung.runs if run.best_video]
        found = [(run, film) for run, film in films if film]
        if not found:
            continue
        run, film = max(found, key=lambda pair: return_of(pair[1]))
        caption = f"{rung.name}, seed {run.seed}: a game with a return of {return_of(film):g}"
        try:
            size = film.stat().st_size
            fits = size <= room
            data = base64.b64encode(film.read_bytes()).decode() if fits else ""
        except OSError:
            continue
        room -= size if fits else 0
        link = os.path.relpath(film, folder)
        yield {"caption": caption, "data": f"data:video/mp4;base64,{data}" if fits else "", "link": link}
