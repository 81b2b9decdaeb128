"""The tables of a report, and its numbers in words."""

from __future__ import annotations

import html
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dqnspeed.report.rungs import BASELINE, Figures, Rung, book_figures, game, short
from dqnspeed.report.runs import Run
from dqnspeed.report.statistics import Estimate

NONE = "-"
SEEDS = 6  # that are listed
NO_INTERVAL = "fewer than five seeds: no interval"


@dataclass(frozen=True)
class Table:
    """A table of text, whose first ``left`` columns are words and the others numbers."""

    columns: list[str]
    rows: list[list[str]]
    left: int = 1

    @property
    def book(self) -> list[int]:
        """The numbers of the columns with the book's figures."""
        return [number for number, column in enumerate(self.columns) if column.startswith("book: ")]

    def without_empty(self) -> Table:
        """The table without the columns that say nothing of any row."""
        said = [any(row[column] != NONE for row in self.rows) for column in range(len(self.columns))]
        kept = [column for column, says in enumerate(said) if says]
        rows = [[row[column] for column in kept] for row in self.rows]
        return Table([self.columns[column] for column in kept], rows, sum(column < self.left for column in kept))

    def markdown(self, is_html: bool = False) -> str:
        """The table as Markdown.

        Args:
            is_html: it will be HTML, so its special characters are escaped.
        """
        marks = ["---" if column < self.left else "---:" for column in range(len(self.columns))]
        shown = as_text if is_html else str
        rows = [[_code(first), *map(shown, rest)] for first, *rest in self.rows]
        escaped = ([" ".join(cell.replace("|", r"\|").split()) for cell in row] for row in [self.columns, *rows])
        head, *body = (f"| {' | '.join(row)} |" for row in escaped)
        return "\n".join([head, f"|{'|'.join(marks)}|", *body])


def as_text(text: str) -> str:
    """``text`` for Markdown, in which it is no HTML."""
    return html.escape(text, quote=False)


def _code(text: str) -> str:
    """``text`` as code of Markdown, with more backticks around it than it has."""
    if "`" not in text:
        return f"`{text}`"
    ticks = "`" * (1 + max(map(len, re.findall("`+", text))))
    return f"{ticks} {text} {ticks}"


def rung_table(rungs: Sequence[Rung], baseline: Rung | None) -> Table:
    """Speed and time to solve of each rung, beside the book's."""
    columns = ["rung", "steps/s", "change", "time to solve", "change", "solved", "mean return", "kind", "seeds",
               "book: steps/s", "book: change", "book: time", "book: change", "remarks"]  # fmt: skip
    rows = []
    for rung in rungs:
        speed_change, time_change = rung.change(baseline)
        rows.append(
            [
                rung.name,
                spread(rung.steps_per_second, ".0f"),
                percent(speed_change),
                time_to_solve(rung) + with_evaluations(rung.runs),
                percent(time_change),
                f"{rung.solved} of {len(rung.runs)}" if rung.bound is not None else NONE,
                _returns(rung),
                ", ".join(kind.removeprefix("changes the ") for kind in rung.kind) or NONE,
                _seeds(rung.runs),
                *_book(rung.book),
                _remarks(rung.runs),
            ]
        )
    return Table(columns, rows).without_empty()


def _remarks(runs: Sequence[Run]) -> str:
    """What became of runs other than well, with their number if there are several runs."""
    counts = Counter(mark for run in runs for mark in run.marks)
    return "; ".join(mark if len(runs) == 1 else f"{mark} ({n} of {len(runs)})" for mark, n in counts.items()) or NONE


def _book(figures: Figures | None) -> list[str]:
    if figures is None:
        return [NONE] * 4
    baseline = book_figures()[BASELINE]
    speed_change, time_change = figures.change(None if figures == baseline else baseline)
    seconds = figures.seconds_to_solve
    time = "not solved" if seconds is None or math.isinf(seconds) else f"{seconds / 60:.0f} min"
    return [number(figures.steps_per_second, ".0f"), percent(speed_change), time, percent(time_change)]


def statistics_table(rungs: Sequence[Rung]) -> Table:
    """The comparison at equal times."""
    columns = ["rung", "runs", "after", "mean return: interquartile mean", "better than the baseline"]
    rows = [
        [
            rung.name,
            f"{rung.compared} of {len(rung.runs)}" if rung.compared < len(rung.runs) else str(len(rung.runs)),
            NONE if rung.compared_after is None else duration(rung.compared_after),
            _interval(rung.score, ".1f"),
            _interval(rung.improvement, ".0%"),
        ]
        for rung in rungs
    ]
    return Table(columns, rows)


def run_table(runs: Sequence[Run]) -> Table:
    """One row a run, slowest first."""
    columns = ["run", "kind", "seed", "agent steps/s", "updates/s", "samples per step", "mean return", "solved after",
               "by the exponential mean", "remarks"]  # fmt: skip
    names = dict(zip(map(id, runs), short([run.label for run in runs]), strict=True))
    rows = []
    for run in sorted(runs, key=lambda run: run.summary["steps_per_second"] or 0):
        summary = run.summary
        bound = "≥ " if summary.get("time_is_lower_bound") else ""
        solved = f"{bound}{number(summary['time_to_solve_s'], '.0f', ' s')}" if run.solved else unsolved(run)
        solved += with_evaluations([run])
        rows.append(
            [
                names[id(run)],
                ", ".join(map(str, summary["kind"])) or NONE,
                str(run.seed),
                number(summary["steps_per_second"], ".0f"),
                number(summary["updates_per_second"], ".1f"),
                number(summary["samples_per_step"], ".1f"),
                f"{number(run.mean, '.1f')}{_of_games([run])}",
                solved,
                number(summary.get("time_to_solve_avg_s"), ".0f", " s"),
                "; ".join(run.marks) or NONE,
            ]
        )
    return Table(columns, rows, left=2).without_empty()


def headlines(rungs: Sequence[Rung], baseline: Rung | None) -> list[str]:
    """What the report says in a sentence or two for each game."""
    games = dict[tuple[str, float | None], list[Rung]]()
    for rung in rungs:
        games.setdefault((rung.env, rung.bound), []).append(rung)
    bounds_of = Counter(env for env, _ in games)
    return [sentence for (env, _), group in games.items() for sentence in _of_game(group, baseline, bounds_of[env] > 1)]


def _of_game(rungs: list[Rung], baseline: Rung | None, several: bool) -> Iterable[str]:
    first, name = rungs[0], game(rungs[0].env)
    name += f" (a mean of {first.bound:g})" if several and first.bound is not None else ""
    best = min(rungs, key=lambda rung: rung.time_to_solve.value if rung.time_to_solve else math.inf)
    if best.time_to_solve and math.isfinite(best.time_to_solve.value):
        seeds = f"median of {len(best.runs)} seeds" if len(best.runs) > 1 else "one seed"
        seeds += f", of which {best.solved} solved it" if best.solved < len(best.runs) else ""
        what = f"{best.name} solves {name}{' soonest' if len(rungs) > 1 else ''}"
        time = time_to_solve(best, interval=False) + with_evaluations(best.runs)
        yield f"{what}: in {time} ({seeds}{_against(best, baseline)})."
    elif scored := [(rung.score.value, rung) for rung in rungs if rung.score]:
        value, top = max(scored, key=lambda pair: pair[0])
        if first.bound is not None:
            who = "Half of the seeds of no rung" if any(rung.solved for rung in rungs) else "No run"
            yield f"{who} reached a mean return of {first.bound:g} in {game(first.env)}."
        by = f", by {top.name}" if len(rungs) > 1 else ""
        which = "Highest mean return" if len(rungs) > 1 else "Mean return"
        yield f"{which} in {name} after {duration(top.compared_after or 0)}: {value:.1f}{by}."
    else:
        yield f"No game of {name} counts yet."
    speeds = {rung.name: rung.steps_per_second.value for rung in rungs if rung.steps_per_second}
    if len(speeds) > 1:
        fastest = max(speeds, key=lambda label: speeds[label])
        yield f"Most agent steps a second: {speeds[fastest]:,.0f}, by {fastest}."


def _against(rung: Rung, baseline: Rung | None) -> str:
    """How its time compares with that of the baseline, if that is another rung."""
    if baseline is None or baseline is rung or baseline.time_to_solve is None:
        return ""
    if (baseline.env, baseline.bound) != (rung.env, rung.bound):
        return ""
    _, change = rung.change(baseline)
    if change is None:
        return f"; {baseline.name} takes {time_to_solve(baseline, interval=False)}"
    return f"; {abs(change):.0%} {'less' if change < 0 else 'more'} than {baseline.name}"


def time_to_solve(rung: Rung, interval: bool = True) -> str:
    """The median time, such as ``6.7 min [3.7, 8.2]`` or ``> 30 min``."""
    if rung.time_to_solve is None or not rung.tried:  # none of its runs has begun to train
        return NONE
    mark = "≥ " if rung.is_lower_bound else ""

    tried, estimate = duration(rung.tried), rung.time_to_solve
    text = f"{mark}{duration(estimate.value)}" if math.isfinite(estimate.value) else f"> {tried}"
    if not interval or estimate.low is None or estimate.high is None or not math.isfinite(estimate.low):
        return text
    ends = [duration(end) if math.isfinite(end) else f"> {tried}" for end in (estimate.low, estimate.high)]
    unit = text.rpartition(" ")[2]
    if all(end.endswith(f" {unit}") for end in ends):
        ends = [end.removesuffix(f" {unit}") for end in ends]
    return f"{text} [{', '.join(ends)}]"


def with_evaluations(runs: Sequence[Run]) -> str:
    """Words that say of a time of training how long it was with evaluations, if there were some: the median of the
    solved runs."""
    solved = [run.time_to_solve[0] + run.eval_seconds for run in runs if run.solved]
    if not solved or not any(run.eval_seconds for run in runs):
        return ""
    return f" of training, {duration(statistics.median(solved))} with evaluations"


def unsolved(run: Run) -> str:
    """What is known of the time to solve of a run that ended without being solved."""
    return f"> {duration(run.seconds)}" if run.bound is not None else NONE


def duration(seconds: float) -> str:
    """Seconds in a unit that suits them: ``45 s``, ``6.7 min``, ``4.6 h``."""
    if seconds < 119.5:
        return f"{seconds:.0f} s" if seconds >= 9.95 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 120 * 60 else f"{seconds / 3600:.1f} h"


def percent(change: float | None) -> str:
    return NONE if change is None else f"{round(change, 2) + 0.0:+.0%}"  # and no -0%


def number(value: float | None, form: str, unit: str = "") -> str:
    return NONE if value is None or not math.isfinite(value) else f"{value:{form}}{unit}"


def spread(estimate: Estimate | None, form: str) -> str:
    """A value and its interval, if it has one."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return number(estimate.value if estimate else None, form)
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"


def _interval(estimate: Estimate | None, form: str) -> str:
    if estimate is None:
        return NONE
    return spread(estimate, form) + (f" ({NO_INTERVAL})" if estimate.low is None else "")


def _seeds(runs: Sequence[Run]) -> str:
    seeds = sorted({run.seed for run in runs})
    return ", ".join(map(str, seeds)) if len(seeds) <= SEEDS else f"{len(seeds)} seeds"


def _returns(rung: Rung) -> str:
    """The final mean returns, from the lowest to the highest."""
    returns = [run.mean for run in rung.runs if run.mean is not None]
    if not returns:
        return NONE
    low, high = f"{min(returns):.1f}", f"{max(returns):.1f}"
    return (low if low == high else f"{low} to {high}") + _of_games(rung.runs)


def _of_games(runs: Sequence[Run]) -> str:
    """A note on means of fewer games than ``stop.window``: the fewest of them."""
    fewest = min((run.games for run in runs if run.games is not None), default=None)
    if fewest is None:
        return ""
    return f" (of {fewest} game{'s' * (fewest > 1)}{' or more' if len(runs) > 1 else ''})"
