"""The figures of a report as data, which both the page and the pictures draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dqnspeed.report.rungs import Rung, game_name
from dqnspeed.report.runs import Run
from dqnspeed.report.tables import format_duration
from dqnspeed.tracking.run_folder import EVALUATING

# Observable's ten colours, which most eyes distinguish on white and on black; after ten rungs the dashes change.
COLOURS = (
    "#4269d0", "#ff725c", "#3ca951", "#efb118", "#a463f2", "#6cc5b0", "#ff8ab7", "#9c6b4e", "#97bbf5", "#9498a0",
)  # fmt: skip
DASHES = "solid", "dash", "dot", "dashdot"
MEAN_RETURN = "mean return"
TIME_SECTIONS = "acting", "stepping", "sampling", "updating", "waiting", "evaluating"
# Limits that keep the page small.
MAX_CURVE_POINTS, MAX_FIGURE_POINTS, MAX_GAME_DOTS = 250, 5000, 500
MAX_RUNS_WITH_GAME_DOTS = 3
MEAN_CURVE_POINTS = 120
MAX_BOUND_DISTANCE = 1.0  # heights of the data between the data and a bound that is still on the axis
Kind = Literal["mean", "seed", "games", "points", "censored", "bar"]


@dataclass(frozen=True)
class Series:
    """Numbers of one kind of one rung, or of one part of all rungs if ``rung`` is ``None``.

    Attributes:
        x: numbers, or names if the figure has one category for each rung.
        low, high: the spread around ``y``, or empty.
        text: for hovering, one text for each point or one for all.
    """

    name: str
    kind: Kind
    rung: int | None
    x: Sequence[float] | Sequence[str]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    text: str | list[str] = ""

    def look(self, number: int) -> tuple[str, str]:
        """Colour and dash of the rung, or of the series with this ``number`` in its figure."""
        index = number if self.rung is None else self.rung
        return COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)]


@dataclass(frozen=True)
class Figure:
    """A plot.

    Attributes:
        name: of its file.
        x, y: titles of the axes, with units.
        note: a caption that says what is drawn, over how many seeds.
        bound: a value of ``y`` to mark by a line.
        own_legend: ``Series.rung`` numbers the entries of a legend of this figure, not the rungs of the report.
    """

    name: str
    title: str
    x: str
    y: str
    note: str
    series: list[Series]
    bound: float | None = None
    from_zero: bool = False
    log_x: bool = False
    own_legend: bool = False

    @property
    def categories(self) -> list[str]:
        """The names on the axis of ``x``, if any; such a figure is drawn sideways, to be readable on a phone."""
        return list(dict.fromkeys(x for series in self.series for x in series.x if isinstance(x, str)))

    @property
    def is_stacked(self) -> bool:
        """Whether bars of different parts are stacked."""
        return bool(self.categories) and all(series.rung is None for series in self.series)

    @property
    def shows_legend(self) -> bool:
        """Whether a legend names the series; the page names rungs beside its checkboxes."""
        return (self.is_stacked or self.own_legend) and len({series.name for series in self.series}) > 1

    def is_named(self, series: Series) -> bool:
        """Whether this series is an entry of ``own_legend``, where each name stands once."""
        return self.own_legend and series is [one for one in self.series if one.name == series.name][-1]

    @property
    def bound_text(self) -> str:
        """The bound in words; empty without one."""
        if self.bound is None:
            return ""
        return f"solved at {self.bound:g}" + ("" if self.shows_bound else ", beyond this axis")

    @property
    def shows_bound(self) -> bool:
        """Whether the bound is on the axis of ``y``; far from the data it would press the curves flat."""
        values = [y for series in self.series for y in (*series.y, *series.low, *series.high) if math.isfinite(y)]
        if self.bound is None or not values:
            return False
        low, high = min(values), max(values)
        return max(low - self.bound, self.bound - high) <= MAX_BOUND_DISTANCE * (high - low)


def figures_of(rungs: Sequence[Rung]) -> list[Figure]:
    """The figures for which the runs have numbers."""
    seeds, minutes, steps, speed = seeds_text(rungs), "minutes of training", "agent steps", "agent steps/s"
    medians = f"{seeds.capitalize()}, a dot each; bars are the medians"
    recent = f"Over the last ten seconds, without the warm-up; {seeds}."
    drawn = [
        *_return_figures(rungs),
        Figure("steps_per_second", "Agent steps a second", "", speed,
               f"Without the warm-up. {medians} of the runs that ended.",
               _rung_series(rungs, _speed, lambda rung: rung.performance.steps_per_second or math.inf),
               from_zero=True),
        Figure("time_to_solve", "Time to solve", "", minutes,
               f"{medians} by Kaplan and Meier. A triangle is a run that did not solve the game: its time is longer.",
               _rung_series(rungs, _minutes, lambda rung: (rung.performance.seconds_to_solve or math.inf) / 60),
               from_zero=True),
        Figure("time_spent", "Time spent in each part of the training loop", "", "% of the wall clock",
               f"Mean of {seeds}. In several processes acting and learning overlap, so parts may add up to more than "
               f"100 %.", _time_sections(rungs), from_zero=True),
        Figure("speed_by_time", "Speed over time", minutes, speed, recent,
               _curves(rungs, "perf/steps_per_second", "time", skip_warm_up=True), from_zero=True),
        Figure("samples_per_step", "Samples per step", minutes, "samples trained on ÷ agent steps", recent,
               _curves(rungs, "perf/samples_per_step", "time", skip_warm_up=True), from_zero=True),
        Figure("episode_length", "Length of games", steps, "agent steps a game",
               f"Of the last game that counts; {seeds}.", _curves(rungs, "episode/length", "step"), from_zero=True),
        Figure("epsilon", "Exploration", steps, "epsilon",
               f"Probability of a random action; {seeds}.", _curves(rungs, "train/epsilon", "step"), from_zero=True),
    ]  # fmt: skip
    return [figure for figure in drawn if figure.series]


def _return_figures(rungs: Sequence[Rung]) -> Iterator[Figure]:
    """Mean returns against time and against steps, two figures for each game."""
    games = dict[str, list[Rung]]()
    for rung in rungs:
        games.setdefault(rung.task[0], []).append(rung)
    for number, (env, group) in enumerate(games.items(), 1):
        suffix, of_game = ("", "") if len(games) == 1 else (f"_{number}", f", {game_name(env)}")
        bounds = {rung.bound for rung in group}
        bound = bounds.pop() if len(bounds) == 1 else None
        note = "Unclipped mean return of the last stop.window training games, or with stop.on=eval of each evaluation; "
        note += f"{seeds_text(group)}."
        if any(len(rung.runs) > 1 for rung in group):
            note += " Thick lines are means over seeds, in which a run that ended keeps its last value; bands are "
            note += "their ranges."
        dots, every = _games(group)
        dots_note = "" if not dots else " A dot is a game." if every == 1 else f" A dot is one game of {every}."
        for x, unit, title, series, more in (
            ("time", "minutes of training", "wall clock", dots, dots_note),
            ("step", "agent steps", "agent steps", [], ""),
        ):
            curves = [*series, *_curves(group, MEAN_RETURN, x, hold=True)]
            title = f"Return against {title}{of_game}"
            yield Figure(f"return_by_{x}{suffix}", title, unit, MEAN_RETURN, note + more, curves, bound)


def seeds_text(rungs: Sequence[Rung]) -> str:
    """Number of seeds of the rungs: ``3 seeds each``, ``1 to 3 seeds each``."""
    counts = sorted({len(rung.runs) for rung in rungs})
    noun = "seed" if all(len({run.seed for run in rung.runs}) == len(rung.runs) for rung in rungs) else "run"
    if counts == [1]:
        return f"one {noun} each"
    return f"{counts[0]} {noun}s each" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} {noun}s each"


def thin_out(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray, num_points: int) -> list[int]:
    """Indices of at most ``num_points`` points, with the lowest and the highest ``y`` of each stretch, in order."""
    if len(x) <= num_points:
        return list(range(len(x)))
    kept = {0, len(x) - 1}
    for stretch in np.array_split(np.arange(1, len(x) - 1), max(1, num_points // 2 - 1)):
        values = np.asarray(y)[stretch]
        kept |= {int(stretch[values.argmin()]), int(stretch[values.argmax()])}
    return sorted(kept)


def _curves(rungs: Sequence[Rung], metric: str, x: str, skip_warm_up: bool = False, hold: bool = False) -> list[Series]:
    """The curve of each run, and the mean curve of each rung with several runs.

    Args:
        metric: of the reports, or :data:`MEAN_RETURN`.
        x: ``time``, in minutes, or ``step``.
        hold: in means, a run that came to its end keeps its last value; else only runs that go on are averaged.
    """
    num_points = min(MAX_CURVE_POINTS, max(20, MAX_FIGURE_POINTS // max(1, sum(len(rung.runs) for rung in rungs))))
    seeds, means = list[Series](), list[Series]()
    for rung in rungs:
        drawn = list[tuple[Run, np.ndarray]]()
        for run in rung.runs:
            if curve := run.mean_returns(x) if metric == MEAN_RETURN else run.curve(metric, x, skip_warm_up):
                drawn.append((run, np.array(curve) / ([60, 1] if x == "time" else 1)))
        kind: Kind = "mean" if len(drawn) == 1 else "seed"
        for run, points in drawn:
            kept = points[thin_out(points[:, 0], points[:, 1], num_points)]
            series = Series(rung.name, kind, rung.number, rounded(kept[:, 0]), rounded(kept[:, 1]), text=run_text(run))
            (means if kind == "mean" else seeds).append(series)
        if len(drawn) > 1:
            held = [hold and run.ended_well and not run.is_pruned for run, _ in drawn]
            means.append(_mean(rung, [points for _, points in drawn], held))
    return [*seeds, *means]


def _mean(rung: Rung, curves: Sequence[np.ndarray], held: Sequence[bool]) -> Series:
    """Mean and range of ``curves`` ``(reports, 2)``.

    The mean ends with the longest curve if curves are ``held`` at their last value, else with the median curve.
    """
    ends = sorted(curve[-1, 0] for curve in curves)
    end = ends[-1 if any(held) else len(ends) // 2]
    grid = np.linspace(min(end, max(curve[0, 0] for curve in curves)), end, MEAN_CURVE_POINTS)
    rights = [curve[-1, 1] if hold else math.nan for curve, hold in zip(curves, held, strict=True)]
    lines = [
        np.interp(grid, curve[:, 0], curve[:, 1], right=right) for curve, right in zip(curves, rights, strict=True)
    ]
    values = np.ma.masked_invalid(lines)
    text = [f"mean of {count} seed{'' if count == 1 else 's'}" for count in values.count(axis=0)]
    mean, low, high = (rounded(line) for line in (values.mean(axis=0), values.min(axis=0), values.max(axis=0)))
    return Series(rung.name, "mean", rung.number, rounded(grid), mean, low, high, text)


def _games(rungs: Sequence[Rung]) -> tuple[list[Series], int]:
    """Dots for the games of a few runs, and the number of games for each of which there is a dot."""
    runs = [(rung, run) for rung in rungs for run in rung.runs if run.episodes]
    if sum(len(rung.runs) for rung in rungs) > MAX_RUNS_WITH_GAME_DOTS:
        return [], 1
    every = max([math.ceil(len(run.episodes) / MAX_GAME_DOTS) for _, run in runs], default=1)
    series = []
    for rung, run in runs:
        episodes = run.episodes[::every]
        minutes, returns = [row["time"] / 60 for row in episodes], [row["return"] for row in episodes]
        text = f"a game of {run_text(run)}"
        series.append(Series(rung.name, "games", rung.number, rounded(minutes), rounded(returns), text=text))
    return series, every


def _rung_series(
    rungs: Sequence[Rung],
    value: Callable[[Run], tuple[float, bool] | None],
    median: Callable[[Rung], float],
) -> list[Series]:
    """Bars for the medians of the rungs, and a dot for each run.

    Args:
        value: a number and whether it is exact; a lower bound gets another kind of dot.
    """
    runs = [run for rung in rungs for run in rung.runs]
    if len(runs) == 1 or not any(found and found[1] for found in map(value, runs)):
        return []
    series = list[Series]()
    kinds: tuple[tuple[Kind, bool, str], ...] = (("points", True, ""), ("censored", False, ", not solved"))
    for rung in rungs:
        bar = median(rung)
        if math.isfinite(bar):
            series.append(Series(rung.name, "bar", rung.number, [rung.name], rounded([bar]), text="median"))
        values = [(run_text(run), value(run)) for run in rung.runs]
        for kind, is_exact, note in kinds:
            dots = [(text + note, found[0]) for text, found in values if found and found[1] == is_exact]
            if dots:
                y, text = rounded(y for _, y in dots), [text for text, _ in dots]
                series.append(Series(rung.name, kind, rung.number, [rung.name] * len(y), y, text=text))
    return series


def _speed(run: Run) -> tuple[float, bool] | None:
    speed = run.summary["steps_per_second"]
    return None if speed is None or not math.isfinite(speed) else (float(speed), True)


def _minutes(run: Run) -> tuple[float, bool] | None:
    seconds, solved = run.time_to_solve
    return (seconds / 60, solved) if solved or (run.bound is not None and seconds) else None


def _time_sections(rungs: Sequence[Rung]) -> list[Series]:
    """Share of the wall clock of each part of the training loop, by the last reports."""
    means = dict[str, dict[str, float]]()
    for rung in rungs:
        shares = [share for share in map(_time_shares, rung.runs) if share]
        for section in dict.fromkeys(key for share in shares for key in share):
            means.setdefault(section, {})[rung.name] = sum(share.get(section, 0.0) for share in shares) / len(shares)
    order = {name: index for index, name in enumerate(TIME_SECTIONS)}
    series = [Series(name, "bar", None, [*mean], rounded(mean.values()), text=name) for name, mean in means.items()]
    return sorted(series, key=lambda one: order.get(one.name.split()[-1], len(order)))


def _time_shares(run: Run) -> dict[str, float]:
    """Percentages of the wall clock, by the part of the training loop."""
    last = run.reports[-1] if run.reports else {"time": 0}
    if last["time"] <= 0:
        return {}
    wall = last["time"] + last.get(EVALUATING, 0.0)
    names = [key for key in last if key.startswith("time/") and not key.startswith("time/gpu_")]  # GPU times overlap
    return {key.removeprefix("time/").replace("_", " "): 100 * last[key] / wall for key in names}


def run_text(run: Run) -> str:
    """A run in the text of a point, beside the name of its rung."""
    remarks = f" ({'; '.join(run.remarks)})" if run.remarks else ""
    return f"seed {run.seed}{remarks}, {format_duration(run.seconds)}"


def rounded(values: Iterable[float]) -> list[float]:
    """``values`` with five digits, more than a screen shows."""
    return [float(f"{value:.5g}") for value in values]
