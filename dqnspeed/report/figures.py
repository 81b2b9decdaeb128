"""The figures of a report, as plain data that both the page and the pictures are drawn from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import numpy as np

from dqnspeed.report.rungs import Rung, differing, game
from dqnspeed.report.runs import Run
from dqnspeed.report.tables import duration
from dqnspeed.tracking.run_folder import EVALUATING

# Observable's ten colours, which differ for most eyes on white and on black; after ten rungs the dashes change.
COLOURS = (
    "#4269d0", "#ff725c", "#3ca951", "#efb118", "#a463f2", "#6cc5b0", "#ff8ab7", "#9c6b4e", "#97bbf5", "#9498a0",
)  # fmt: skip
FOLLOW_NUM_ENVS = "algo.batch_size", "algo.steps_per_update"  # the book's updates are as many times larger and rarer
DASHES = "solid", "dash", "dot", "dashdot"
MEANS = "means"
PARTS = "acting", "stepping", "sampling", "updating", "waiting", "evaluating"
POINTS, ALL_POINTS = 250, 5000  # of a curve, and of all curves of a figure, so that the page stays small
FEW = 3  # runs whose single games are shown
GRID = 120  # points of a mean over seeds
BOUND_SHARE = 1.0  # heights of the data by which a bound may be away from them and still be on the axis
Kind = Literal["mean", "seed", "games", "points", "censored", "bar"]


@dataclass(frozen=True)
class Series:
    """Numbers of one kind of one rung, or (``rung`` is ``None``) of one part of all rungs.

    Attributes:
        x: numbers, or names where a figure has one place for each rung.
        low, high: the spread around ``y``, or empty.
        text: of each point, for hovering; or one for all.
    """

    name: str
    kind: Kind
    rung: int | None
    x: list[float] | list[str]
    y: list[float]
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    text: str | list[str] = ""


@dataclass(frozen=True)
class Figure:
    """A plot: its file name, title, axes with units, a note that says what is drawn and of how many seeds.

    Attributes:
        bound: a value of ``y`` worth a line.
        from_zero: whether the axis of ``y`` begins there.
        log_x: whether the axis of ``x`` is logarithmic.
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

    @property
    def places(self) -> list[str]:
        """The names of the places of a figure whose ``x`` are such; it is drawn sideways, to be read on a phone."""
        return list(dict.fromkeys(x for series in self.series for x in series.x if isinstance(x, str)))

    @property
    def bound_text(self) -> str:
        """The bound in words; empty without one."""
        if self.bound is None:
            return ""
        return f"solved at {self.bound:g}" + ("" if self.shows_bound else ", beyond this axis")

    @property
    def shows_bound(self) -> bool:
        """Whether the bound is on the axis of ``y``; far from the data it would press them flat."""
        values = [y for series in self.series for y in (*series.y, *series.low, *series.high) if math.isfinite(y)]
        if self.bound is None or not values:
            return False
        low, high = min(values), max(values)
        return max(low - self.bound, self.bound - high) <= BOUND_SHARE * (high - low)


def figures_of(rungs: Sequence[Rung]) -> list[Figure]:
    """The figures that these runs have numbers for."""
    seeds, minutes, steps = seeds_of(rungs), "minutes of training", "agent steps"
    of_ended = "the bar is the median of those that came to their end"
    one_each = all(len(rung.runs) == 1 for rung in rungs)
    drawn = [
        *_returns(rungs),
        Figure("steps_per_second", "Agent steps a second", "", "agent steps/s",
               f"Without the warm-up; {seeds}{'' if one_each else f', a dot each, {of_ended}'}.",
               _speeds(rungs), from_zero=True),
        Figure("time_to_solve", "Time to solve", "", minutes,
               f"{seeds.capitalize()}, a dot each; a triangle is a run that has not solved it, so its time is longer.",
               _times(rungs), from_zero=True),
        Figure("speed_by_num_envs", "Speed against the number of environments", "num_envs", "agent steps/s",
               f"Median of the seeds and a dot for each; {seeds}.", _by_num_envs(rungs, _speed), from_zero=True),
        Figure("time_by_num_envs", "Time to solve against the number of environments", "num_envs", minutes,
               f"Median of the seeds (Kaplan and Meier's) and a dot for each, a triangle if it has not solved it; "
               f"{seeds}.", _by_num_envs(rungs, _minutes), from_zero=True),
        Figure("time_spent", "Where the time goes", "", "% of the wall clock",
               f"Mean of {seeds}. Acting and learning in several processes overlap, so parts may add up to more than "
               f"100 %.", _parts(rungs), from_zero=True),
        Figure("speed_by_time", "Speed over time", minutes, "agent steps/s",
               f"Over the last ten seconds, without the warm-up; {seeds}.",
               _curves(rungs, "perf/steps_per_second", "time", learning=True), from_zero=True),
        Figure("samples_per_step", "Samples per step", minutes, "samples trained on ÷ agent steps",
               f"Over the last ten seconds, without the warm-up; {seeds}.",
               _curves(rungs, "perf/samples_per_step", "time", learning=True), from_zero=True),
        Figure("episode_length", "Length of games", steps, "agent steps a game",
               f"Of the last game that counts; {seeds}.", _curves(rungs, "episode/length", "step"), from_zero=True),
        Figure("epsilon", "Exploration", steps, "epsilon",
               f"Chance of a random action; {seeds}.", _curves(rungs, "train/epsilon", "step"), from_zero=True),
    ]  # fmt: skip
    return [figure for figure in drawn if figure.series]


def _returns(rungs: Sequence[Rung]) -> Iterator[Figure]:
    """Returns against time and steps, a pair for each game."""
    games = dict[str, list[Rung]]()
    for rung in rungs:
        games.setdefault(rung.env, []).append(rung)
    for number, (env, group) in enumerate(games.items(), 1):
        suffix, of_game = ("", "") if len(games) == 1 else (f"_{number}", f", {game(env)}")
        bounds = {rung.bound for rung in group}
        bound = bounds.pop() if len(bounds) == 1 else None
        more = any(len(rung.runs) > 1 for rung in group)
        band = "; thick their mean, in which a seed that ended keeps its last value, and their spread" if more else ""
        evaluated = {run.is_evaluated for rung in group for run in rung.runs}
        kinds = {False: "last games, as many as stop.window", True: "games of each evaluation"}
        what = ", or of the ".join(kinds[kind] for kind in sorted(evaluated))
        note = f"Mean of the {what}, unclipped; {seeds_of(group)}{band}."
        games_of, each = _games(group)
        dots = "" if not games_of else " A dot is a game." if each == 1 else f" A dot is one game of {each}."
        yield Figure(f"return_by_time{suffix}", f"Return against wall clock{of_game}", "minutes of training",
                     "mean return", f"{note}{dots}",
                     [*games_of, *_curves(group, MEANS, "time", hold=True)], bound)  # fmt: skip
        yield Figure(f"return_by_step{suffix}", f"Return against agent steps{of_game}", "agent steps", "mean return",
                     note, _curves(group, MEANS, "step", hold=True), bound)  # fmt: skip


def seeds_of(rungs: Sequence[Rung]) -> str:
    """How many seeds the rungs have: ``3 seeds each``, ``1 to 3 seeds each``."""
    counts = sorted({len(rung.runs) for rung in rungs})
    what = "seed" if all(len({run.seed for run in rung.runs}) == len(rung.runs) for rung in rungs) else "run"
    if counts == [1]:
        return f"one {what} each"
    return f"{counts[0]} {what}s each" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} {what}s each"


def thin(x: Sequence[float], y: Sequence[float], points: int) -> list[int]:
    """Indices of at most ``points`` points, with the lowest and the highest ``y`` of each stretch, in order."""
    if len(x) <= points:
        return list(range(len(x)))
    kept = {0, len(x) - 1}
    for stretch in np.array_split(np.arange(1, len(x) - 1), max(1, points // 2 - 1)):
        values = np.asarray(y)[stretch]
        kept |= {int(stretch[values.argmin()]), int(stretch[values.argmax()])}
    return sorted(kept)


def _curves(
    rungs: Sequence[Rung], metric: str, against: str, learning: bool = False, hold: bool = False
) -> list[Series]:
    """The curve of each run, from where it is ``learning`` or from its start, and the means of rungs with several.

    Args:
        metric: of the reports; or :data:`MEANS`, the mean return that says whether a run is solved.
        hold: whether one that came to its end counts on with its last value; else means are of those that go on.
    """
    points = min(POINTS, max(20, ALL_POINTS // max(1, sum(len(rung.runs) for rung in rungs))))
    single, means = list[Series](), list[Series]()
    for rung in rungs:
        of = [run.means(against) if metric == MEANS else run.curve(metric, against, learning) for run in rung.runs]
        curves = [(run, _scaled(curve, against)) for run, curve in zip(rung.runs, of, strict=True)]
        drawn = [(run, curve) for run, curve in curves if curve]
        for run, curve in drawn:
            x, y = zip(*curve, strict=True)
            kept = thin(x, y, points)
            kind: Kind = "mean" if len(drawn) == 1 else "seed"
            series = Series(rung.name, kind, rung.number, _each(x, kept), _each(y, kept), text=of_run(run))
            (means if kind == "mean" else single).append(series)
        if len(drawn) > 1:
            held = [hold and run.ended_well and not run.pruned for run, _ in drawn]
            means.append(_mean(rung.name, rung.number, [curve for _, curve in drawn], held))
    return [*single, *means]


def _mean(name: str, rung: int, curves: Sequence[Sequence[tuple[float, float]]], held: Sequence[bool]) -> Series:
    """Mean, lowest and highest of the curves, to the end of the last where each is ``held`` at its last value or not;
    if none is, while half of them go on."""
    ends = sorted(curve[-1][0] for curve in curves)
    end = ends[-1 if any(held) else len(ends) // 2]
    grid = np.linspace(min(end, max(curve[0][0] for curve in curves)), end, GRID)
    columns = [
        np.interp(grid, [x for x, _ in curve], [y for _, y in curve], right=curve[-1][1] if hold else math.nan)
        for curve, hold in zip(curves, held, strict=True)
    ]
    values = np.ma.masked_invalid(np.stack(columns))
    text = [f"mean of {count} seed{'' if count == 1 else 's'}" for count in values.count(axis=0)]
    low, high = values.min(axis=0), values.max(axis=0)
    return Series(name, "mean", rung, _short(grid), _short(values.mean(axis=0)), _short(low), _short(high), text)


def _games(rungs: Sequence[Rung]) -> tuple[list[Series], int]:
    """A dot for each game of a few runs, or for one of so many."""
    runs = [run for rung in rungs for run in rung.runs]
    if len(runs) > FEW:
        return [], 1
    series, each = list[Series](), max([1, *(math.ceil(len(run.episodes) / (2 * POINTS)) for run in runs)])
    for rung in rungs:
        for run in rung.runs:
            x, y = ([row[column] for row in run.episodes[::each]] for column in ("time", "return"))
            if x:
                minutes, text = [seconds / 60 for seconds in x], f"a game of {of_run(run)}"
                series.append(Series(rung.name, "games", rung.number, _short(minutes), _short(y), text=text))
    return series, each


def _speeds(rungs: Sequence[Rung]) -> list[Series]:
    if sum(len(rung.runs) for rung in rungs) == 1:
        return []  # the summary says it
    medians = [
        Series(rung.name, "bar", rung.number, [rung.name], _short([rung.steps_per_second.value]), text="median")
        for rung in rungs
        if rung.steps_per_second
    ]
    return medians + _dots(rungs, _speed, lambda rung: rung.name, only_several=True)


def _times(rungs: Sequence[Rung]) -> list[Series]:
    if not any(rung.solved for rung in rungs) or sum(len(rung.runs) for rung in rungs) == 1:
        return []
    return _dots(rungs, _minutes, lambda rung: rung.name)


def _by_num_envs(rungs: Sequence[Rung], value: Callable[[Run], tuple[float, bool] | None]) -> list[Series]:
    """A dot a run, and the medians of the rungs joined, if these differ in their number of environments alone."""
    runs = [run for rung in rungs for run in rung.runs]
    others = {key for key in differing(runs) if key.partition(".")[0] not in ("seed", "experiment", "stop")}
    if others - {"num_envs", *FOLLOW_NUM_ENVS}:
        return []
    counts = [{run.value("num_envs") for run in rung.runs} for rung in rungs]
    numbers = [count for found in counts for count in found if isinstance(count, int)]
    if not len(rungs) == len(set(numbers)) == sum(map(len, counts)) > 1:
        return []
    if value is _minutes and not any(rung.solved for rung in rungs):
        return []
    medians = []
    for rung, place in zip(rungs, numbers, strict=True):
        seconds = rung.figures.seconds_to_solve
        median = rung.figures.steps_per_second if value is _speed else seconds and seconds / 60
        medians.append((float(place), math.nan if median is None or not math.isfinite(median) else median))
    if all(math.isnan(median) for _, median in medians):
        return []
    x, y = ([pair[column] for pair in sorted(medians)] for column in (0, 1))
    return [Series("median", "mean", None, _short(x), _short(y), text="median"),
            *_dots(rungs, value, lambda rung: rung.runs[0].value("num_envs"))]  # fmt: skip


def _dots(
    rungs: Sequence[Rung],
    value: Callable[[Run], tuple[float, bool] | None],
    place: Callable[[Rung], str | float],
    only_several: bool = False,
) -> list[Series]:
    """A dot a run at the place of its rung, other than where its ``value`` is only known to be larger."""
    series = []
    for rung in rungs:
        kinds: tuple[tuple[Kind, bool], ...] = (("points", True), ("censored", False))
        for kind, known in kinds:
            found = [(run, value(run)) for run in rung.runs if not (only_several and len(rung.runs) == 1)]
            shown = [(run, number_[0]) for run, number_ in found if number_ is not None and number_[1] == known]
            if shown:
                x = cast("list[float] | list[str]", [place(rung)] * len(shown))
                text = [of_run(run) + ("" if known else ", not solved") for run, _ in shown]
                series.append(Series(rung.name, kind, rung.number, x, _short([y for _, y in shown]), text=text))
    return series


def _speed(run: Run) -> tuple[float, bool] | None:
    speed = run.summary["steps_per_second"]
    return None if speed is None or not math.isfinite(speed) else (float(speed), True)


def _minutes(run: Run) -> tuple[float, bool] | None:
    seconds, solved = run.time_to_solve
    return (seconds / 60, solved) if solved or (run.bound is not None and seconds) else None


def _parts(rungs: Sequence[Rung]) -> list[Series]:
    """The share of the wall clock that each part of the loop took, by the last reports."""
    parts = dict[str, dict[str, float]]()
    for rung in rungs:
        shares = [_shares(run) for run in rung.runs]
        for part in dict.fromkeys(key for share in shares for key in share):
            parts.setdefault(part, {})[rung.name] = sum(share.get(part, 0.0) for share in shares if share) / sum(
                map(bool, shares)
            )
    order = sorted(parts, key=lambda part: next((i for i, name in enumerate(PARTS) if part.endswith(name)), len(PARTS)))
    return [Series(part, "bar", None, list(parts[part]), _short(list(parts[part].values())), text=part)
            for part in order]  # fmt: skip


def _shares(run: Run) -> dict[str, float]:
    """Percent of the wall clock by the parts of the loop."""
    last = run.reports[-1] if run.reports else {"time": 0}
    if last["time"] <= 0:
        return {}
    wall = last["time"] + last.get(EVALUATING, 0.0)
    times = {key.removeprefix("time/").replace("_", " "): value for key, value in last.items() if key[:5] == "time/"}
    times = {part: value for part, value in times.items() if not part.startswith("gpu ")}  # while the host's pass
    return {part: 100 * value / wall for part, value in times.items()}


def of_run(run: Run) -> str:
    """A run as a figure names it beside its rung."""
    marks = f" ({'; '.join(run.marks)})" if run.marks else ""
    return f"seed {run.seed}{marks}, {duration(run.seconds)}"


def _scaled(curve: list[tuple[float, float]], against: str) -> list[tuple[float, float]]:
    return [(x / 60, y) for x, y in curve] if against == "time" else curve


def _each(values: Sequence[float], indices: Sequence[int]) -> list[float]:
    return _short([values[index] for index in indices])


def _short(values: Sequence[float] | np.ndarray) -> list[float]:
    """Five digits are more than a screen shows."""
    return [float(f"{value:.5g}") for value in values]
