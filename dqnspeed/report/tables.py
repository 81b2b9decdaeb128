"""The tables of a report, and its numbers in words."""

from __future__ import annotations

import html
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dqnspeed.report.rungs import BASELINE, Performance, Rung, book_performance, game_name, short_names
from dqnspeed.report.runs import Run
from dqnspeed.report.statistics import Estimate

EMPTY = "-"
MAX_SEEDS_LISTED = 6


@dataclass(frozen=True)
class Table:
    """A table of text; its first ``num_text_columns`` columns hold words, the others numbers."""

    columns: list[str]
    rows: list[list[str]]
    num_text_columns: int = 1

    @property
    def book_columns(self) -> list[int]:
        """Indices of the columns with the book's figures."""
        return [index for index, column in enumerate(self.columns) if column.startswith("book: ")]

    def without_empty_columns(self) -> Table:
        kept = [index for index, cells in enumerate(zip(*self.rows, strict=True)) if {*cells} != {EMPTY}]
        rows = [[row[index] for index in kept] for row in self.rows]
        return Table(
            [self.columns[index] for index in kept], rows, sum(index < self.num_text_columns for index in kept)
        )

    def markdown(self, escape_html: bool = False) -> str:
        """The table as Markdown.

        Args:
            escape_html: escape characters that have a meaning in HTML; the terminal shows them as they are.
        """
        marks = ["---" if index < self.num_text_columns else "---:" for index in range(len(self.columns))]
        shown = escaped if escape_html else str
        named = (["`" + name.replace("`", "'") + "`", *map(shown, others)] for name, *others in self.rows)
        rows = [self.columns, *named]
        lines = [" | ".join(" ".join(cell.replace("|", r"\|").split()) for cell in row) for row in rows]
        head, *body = (f"| {line} |" for line in lines)
        return "\n".join([head, f"|{'|'.join(marks)}|", *body])


def escaped(text: str) -> str:
    """``text`` for Markdown and Plotly, which render HTML; Plotly knows no entities of quotation marks."""
    return html.escape(text, quote=False)


def rung_table(rungs: Sequence[Rung], baseline: Rung | None) -> Table:
    """Speed and time to solve of each rung, and the book's figures."""
    columns = ["rung", "steps/s", "change", "time to solve", "change", "solved", "mean return", "kind", "seeds",
               "protocol", "book: steps/s", "book: change", "book: time", "book: change", "remarks"]  # fmt: skip
    rows = []
    for rung in rungs:
        speed_change, time_change = rung.change(baseline)
        row = [
            rung.name,
            format_estimate(rung.steps_per_second, ".0f"),
            format_change(speed_change),
            format_time_to_solve(rung) + with_evaluations(rung.runs),
            format_change(time_change),
            f"{rung.num_solved} of {len(rung.runs)}" if rung.bound is not None else EMPTY,
            _mean_returns(rung),
            ", ".join(kind.removeprefix("changes the ") for kind in rung.kind) or EMPTY,
            format_seeds(rung.runs),
            format_protocol(rung.protocol),
            *_book_cells(rung.book),
            format_remarks(rung.runs),
        ]
        rows.append(row)
    return Table(columns, rows).without_empty_columns()


def format_remarks(runs: Sequence[Run]) -> str:
    """Remarks on ``runs``, each with the number of runs if there are several."""
    counts = Counter(remark for run in runs for remark in run.remarks)
    numbers = {remark: "" if len(runs) == 1 else f" ({count} of {len(runs)})" for remark, count in counts.items()}
    return "; ".join(f"{remark}{number}" for remark, number in numbers.items()) or EMPTY


def _book_cells(book: Performance | None) -> list[str]:
    if book is None:
        return [EMPTY] * 4
    baseline = book_performance()[BASELINE]
    speed_change, time_change = Performance() if book == baseline else book.change(baseline)
    minutes = (book.seconds_to_solve or math.inf) / 60
    time = f"{minutes:.0f} min" if math.isfinite(minutes) else "not solved"
    return [format_number(book.steps_per_second, ".0f"), format_change(speed_change), time, format_change(time_change)]


def statistics_table(rungs: Sequence[Rung], baseline: Rung | None) -> Table:
    """Comparison of mean returns after equal times of training."""
    columns = ["rung", "runs", "after", "mean return: interquartile mean", "better than the baseline"]
    rows = []
    for rung in rungs:
        compared, num_runs = len(rung.scores), len(rung.runs)
        row = [
            rung.name,
            f"{compared} of {num_runs}" if compared < num_runs else str(num_runs),
            EMPTY if rung.compared_at is None else format_duration(rung.compared_at),
            format_estimate(rung.score, ".1f"),
            format_estimate(rung.improvement(baseline), ".0%"),
        ]
        rows.append(row)
    return Table(columns, rows)


def run_table(runs: Sequence[Run]) -> Table:
    """One row a run, slowest first."""
    columns = ["run", "kind", "seed", "protocol", "agent steps/s", "updates/s", "samples per step", "mean return",
               "solved after", "solved by exponential mean", "remarks"]  # fmt: skip
    names = zip(runs, short_names([run.label for run in runs]), strict=True)
    rows = []
    for run, name in sorted(names, key=lambda pair: pair[0].summary["steps_per_second"] or 0):
        summary = run.summary
        solved = f"> {format_duration(run.seconds)}" if run.bound is not None else EMPTY
        if run.solved:
            bound = "≥ " if summary.get("time_is_lower_bound") else ""
            solved = f"{bound}{format_number(summary['time_to_solve_s'], '.0f', ' s')}"
        row = [
            name,
            ", ".join(map(str, summary["kind"])) or EMPTY,
            str(run.seed),
            format_protocol(run.protocol),
            format_number(summary["steps_per_second"], ".0f"),
            format_number(summary["updates_per_second"], ".1f"),
            format_number(summary["samples_per_step"], ".1f"),
            f"{format_number(run.mean_return, '.1f')}{format_num_games([run])}",
            solved + with_evaluations([run]),
            format_number(summary.get("time_to_solve_avg_s"), ".0f", " s"),
            format_remarks([run]),
        ]
        rows.append(row)
    return Table(columns, rows, num_text_columns=2).without_empty_columns()


def headlines(rungs: Sequence[Rung], baseline: Rung | None) -> list[str]:
    """The results of each task in a sentence or two."""
    tasks = dict[tuple[str, float | None], list[Rung]]()
    for rung in rungs:
        tasks.setdefault(rung.task, []).append(rung)
    num_bounds = Counter(env for env, _ in tasks)
    found = list[str]()
    for (env, bound), group in tasks.items():
        game = game_name(env)
        task = f"{game} (a mean of {bound:g})" if num_bounds[env] > 1 and bound is not None else game
        found += _headlines_of_task(task, game, group, baseline)
    return found


def _headlines_of_task(task: str, game: str, rungs: list[Rung], baseline: Rung | None) -> Iterator[str]:
    several, bound = len(rungs) > 1, rungs[0].bound
    best = min(rungs, key=lambda rung: rung.time_to_solve.value if rung.time_to_solve else math.inf)
    if best.time_to_solve and math.isfinite(best.time_to_solve.value):
        seeds = f"median of {len(best.runs)} seeds" if len(best.runs) > 1 else "one seed"
        seeds += f", of which {best.num_solved} solved it" if best.num_solved < len(best.runs) else ""
        time = format_time_to_solve(best, interval=False) + with_evaluations(best.runs)
        soonest = " soonest" if several else ""
        yield f"{best.name} solves {task}{soonest}: in {time} ({seeds}{_against_baseline(best, baseline)})."
    elif scores := [(rung.score.value, rung) for rung in rungs if rung.score]:
        value, top = max(scores, key=lambda pair: pair[0])
        if bound is not None:
            some_solved = any(rung.num_solved for rung in rungs)
            nobody = "In no rung did half of the seeds reach" if some_solved else "No run reached"
            yield f"{nobody} a mean return of {bound:g} in {game}."
        which, by = ("Highest mean return", f", by {top.name}") if several else ("Mean return", "")
        yield f"{which} in {task} after {format_duration(top.compared_at or 0)}: {value:.1f}{by}."
    else:
        yield f"{task} has no mean return yet."
    if speeds := [(rung.steps_per_second.value, rung.name) for rung in rungs if rung.steps_per_second]:
        speed, name = max(speeds, key=lambda pair: pair[0])
        if len(speeds) > 1:
            yield f"Most agent steps a second: {speed:,.0f}, by {name}."


def _against_baseline(rung: Rung, baseline: Rung | None) -> str:
    """Comparison of the time to solve with the baseline's, if it is another rung of the task."""
    if baseline is None or not (baseline.ended_well and baseline.time_to_solve and rung.is_comparable(baseline)):
        return ""
    change = rung.change(baseline).seconds_to_solve
    if change is None:
        return f"; {baseline.name} takes {format_time_to_solve(baseline, interval=False)}"
    return f"; {abs(change):.0%} {'less' if change < 0 else 'more'} than {baseline.name}"


def format_time_to_solve(rung: Rung, interval: bool = True) -> str:
    """Median time to solve, such as ``6.7 min [3.7, 8.2]`` or ``> 30 min``."""
    if rung.time_to_solve is None or not rung.longest_seconds:  # none of its runs has begun to train
        return EMPTY

    def form(seconds: float) -> str:
        return format_duration(seconds) if math.isfinite(seconds) else f"> {format_duration(rung.longest_seconds)}"

    value, low, high = rung.time_to_solve.value, rung.time_to_solve.low, rung.time_to_solve.high
    text = f"{'≥ ' if rung.is_lower_bound and math.isfinite(value) else ''}{form(value)}"
    if not interval or low is None or high is None or not math.isfinite(low):
        return text
    ends, unit = [form(low), form(high)], f" {text.rpartition(' ')[2]}"
    if all(end.endswith(unit) for end in ends):
        ends = [end.removesuffix(unit) for end in ends]
    return f"{text} [{', '.join(ends)}]"


def with_evaluations(runs: Sequence[Run]) -> str:
    """Words after a time of training: the median of the solved runs' times with evaluations, if there were any."""
    solved = [run.time_to_solve[0] + run.eval_seconds for run in runs if run.solved]
    if not solved or not any(run.eval_seconds for run in runs):
        return ""
    return f" of training, {format_duration(statistics.median(solved))} with evaluations"


def format_duration(seconds: float) -> str:
    """Seconds in a suitable unit: ``45 s``, ``6.7 min``, ``4.6 h``."""
    if seconds < 119.5:
        return f"{seconds:.0f} s" if seconds >= 9.95 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 120 * 60 else f"{seconds / 3600:.1f} h"


def format_change(change: float | None) -> str:
    return EMPTY if change is None else f"{round(change, 2) + 0.0:+.0%}"  # adding 0.0 avoids -0%


def format_number(value: float | None, spec: str, unit: str = "") -> str:
    if value is None or not math.isfinite(value):
        return EMPTY
    text = f"{value:{spec}}"
    return f"{text if text.strip('-0.%') else text.lstrip('-')}{unit}"  # no -0.00


def format_estimate(estimate: Estimate | None, spec: str) -> str:
    """A value, and its interval if it has one."""
    value = format_number(estimate.value if estimate else None, spec)
    if estimate is None or estimate.low is None or estimate.high is None:
        return value
    return f"{value} [{format_number(estimate.low, spec)}, {format_number(estimate.high, spec)}]"


def format_protocol(protocol: str | None) -> str:
    """The protocol without the options that made it custom."""
    return EMPTY if protocol is None else re.sub(r"^custom .*", "custom", protocol)


def format_seeds(runs: Sequence[Run]) -> str:
    seeds = sorted({run.seed for run in runs})
    return ", ".join(map(str, seeds)) if len(seeds) <= MAX_SEEDS_LISTED else f"{len(seeds)} seeds"


def _mean_returns(rung: Rung) -> str:
    """Final mean returns, from the lowest to the highest."""
    returns = [run.mean_return for run in rung.runs if run.mean_return is not None]
    if not returns:
        return EMPTY
    ends = dict.fromkeys(f"{value:.1f}" for value in (min(returns), max(returns)))
    return " to ".join(ends) + format_num_games(rung.runs)


def format_num_games(runs: Sequence[Run]) -> str:
    """A note on means over fewer games than ``stop.window``."""
    fewest = min((run.num_games for run in runs if run.num_games is not None), default=None)
    if fewest is None:
        return ""
    return f" (over {fewest}{' or more' if len(runs) > 1 else ''} game{'s' if fewest > 1 or len(runs) > 1 else ''})"
