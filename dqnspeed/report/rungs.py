"""Runs put together: the seeds of one rung, its statistics, and its changes against the baseline and the book."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dqnspeed.config.options import ConfigError, nearest
from dqnspeed.config.schema import KINDS
from dqnspeed.report import statistics
from dqnspeed.report.runs import Run
from dqnspeed.report.statistics import Estimate, estimate
from dqnspeed.tracking.run_folder import flat
from dqnspeed.tracking.trackers import hyperparameters

BASELINE = "baseline"
OVERRIDES = re.compile(r" (?=[+~]?[\w./@]+=)")  # what is between those of a label, whose values may have blanks
BOOK = Path(__file__).with_name("book_ladder.csv")
BOOK_ENV, BOOK_BOUND = "PongNoFrameskip-v4", 17
DIGITS = 4  # of long numbers in names, as a search tries them
_LONG_NUMBER = re.compile(r"(?<==)-?\d*\.\d{5,}(?:e[-+]?\d+)?(?= |$)")


@dataclass(frozen=True)
class Figures:
    """What is compared of a rung: its speed, and the time it takes to solve the game."""

    steps_per_second: float | None
    seconds_to_solve: float | None  # infinite: longer than was tried

    def change(self, other: Figures | None) -> tuple[float | None, float | None]:
        """The changes of both against ``other``: 0.44 is 44 % more."""
        if other is None:
            return None, None
        return (
            _change(self.steps_per_second, other.steps_per_second),
            _change(self.seconds_to_solve, other.seconds_to_solve),
        )


def _change(value: float | None, other: float | None) -> float | None:
    if value is None or not other or not math.isfinite(value) or not math.isfinite(other):
        return None
    return value / other - 1


@dataclass(frozen=True)
class Rung:
    """Runs that differ by their seeds, or have one value of ``group_by``, in one game and with one bound.

    Attributes:
        number: its place in the report, which its colour follows.
        name: short, without what all rungs of the report share.
        label: the whole name.
        steps_per_second: median over the runs that ended well; over all if none did.
        time_to_solve: Kaplan and Meier's median, in seconds; ``None`` without a bound.
        score: interquartile mean of the runs' mean returns after ``compared_after`` seconds.
        improvement: the probability that a run of this rung has a higher one then than one of the baseline.
        book: the book's figures of the same rung, if it has them.
    """

    number: int
    name: str
    label: str
    runs: list[Run]
    compared_after: float | None
    compared: int
    steps_per_second: Estimate | None
    time_to_solve: Estimate | None
    score: Estimate | None
    improvement: Estimate | None
    book: Figures | None

    @property
    def kind(self) -> list[str]:
        return [kind for kind in KINDS if any(kind in run.summary["kind"] for run in self.runs)]

    @property
    def env(self) -> str:
        return _known(self.runs).env

    @property
    def bound(self) -> float | None:
        return _known(self.runs).bound

    @property
    def solved(self) -> int:
        return sum(run.solved for run in self.runs)

    @property
    def tried(self) -> float:
        """Seconds of the longest run."""
        return max(run.seconds for run in self.runs)

    @property
    def is_lower_bound(self) -> bool:
        """Whether a run was killed and lost time that nobody counted."""
        return any(bool(run.summary.get("time_is_lower_bound")) for run in self.runs)

    @property
    def mixed(self) -> list[str]:
        """The options besides the seed in which its runs differ, such as limits, that are no part of a label."""
        return [key for key in differing(self.runs) if key.partition(".")[0] not in ("seed", "experiment")]

    @property
    def figures(self) -> Figures:
        speed, time = self.steps_per_second, self.time_to_solve
        return Figures(speed.value if speed else None, time.value if time else None)

    def change(self, baseline: Rung | None) -> tuple[float | None, float | None]:
        """The changes of speed and of time to solve against ``baseline``, if that is another rung of the same game."""
        comparable = baseline and baseline is not self and (baseline.env, baseline.bound) == (self.env, self.bound)
        return self.figures.change(baseline.figures if baseline and comparable else None)


def differing(runs: Sequence[Run]) -> list[str]:
    """The options in which ``runs`` differ, of those that all have; of a group whose options differ, its name alone."""
    configs = [flat(hyperparameters(run.config)) for run in runs if run.config]
    shared = set.intersection(*map(set, configs)) if configs else set[str]()
    keys = [key for key in configs[0] if key in shared] if configs else []
    found = [key for key in keys if len({str(config[key]) for config in configs}) > 1]
    named = {key.partition(".")[0] for key in found if key.endswith((".name", "env.id"))}
    return [key for key in found if key.partition(".")[0] not in named or key.endswith((".name", "env.id"))]


def rungs_of(runs: Sequence[Run], group_by: str | None = None, baseline: str | None = None) -> list[Rung]:
    """The rungs of ``runs``, in the order in which they come first.

    Raises:
        ConfigError: no run has ``group_by``, or no rung is named ``baseline``.
    """
    groups = _groups(runs, group_by)
    names = dict(zip(groups, short(list(groups)), strict=True))
    reference = _baseline(names, baseline)
    book, games = book_figures(), dict[tuple[str, float | None], list[Run]]()
    for run in runs:
        games.setdefault((run.env, run.bound), []).append(run)
    compared = {of: compared_after(same_game) for of, same_game in games.items()}
    found = []
    for number, (label, group) in enumerate(groups.items()):
        known = _known(group)
        of = known.env, known.bound
        after = compared[of]
        of_baseline = groups[reference] if reference and _known(groups[reference]) in games[of] else []
        scores = _scores(group, after)
        in_book = of == (BOOK_ENV, BOOK_BOUND) and len({run.label for run in group}) == 1
        found.append(
            Rung(
                number=number,
                name=names[label],
                label=label,
                runs=group,
                compared_after=after,
                compared=len(scores),
                steps_per_second=estimate(statistics.median, _speeds(group)),
                time_to_solve=_time_to_solve(group),
                score=estimate(statistics.interquartile_mean, scores),
                improvement=None
                if label == reference
                else estimate(statistics.probability_of_improvement, scores, _scores(of_baseline, after)),
                book=book.get(known.label) if in_book else None,
            )
        )
    return found


def baseline_of(rungs: Iterable[Rung], baseline: str | None = None) -> Rung | None:
    """The rung that changes are measured against, if a run of it ended well."""
    wanted = baseline or BASELINE
    found = next((rung for rung in rungs if wanted in (rung.label, rung.name)), None)
    return found if found and any(run.ended_well for run in found.runs) else None


def _baseline(names: dict[str, str], baseline: str | None) -> str | None:
    wanted = baseline or BASELINE
    found = next((label for label, name in names.items() if wanted in (label, name)), None)
    if found is None and baseline is not None:
        known = list(dict.fromkeys([*names.values(), *names]))
        raise ConfigError(
            f"baseline={baseline}: there is no such rung{nearest(baseline, known)}; choose one of "
            f"{', '.join(names.values())}."
        )
    return found


def _groups(runs: Sequence[Run], group_by: str | None) -> dict[str, list[Run]]:
    """Runs by the names of their rungs; a rung of several games or bounds is several."""
    if group_by and all(run.value(group_by) is None for run in runs):
        known = sorted({key for run in runs for key in [*_keys(run.config), *_keys(run.summary)]})
        raise ConfigError(f"group_by={group_by}: no run has such an option{nearest(group_by, known)}.")
    first = dict[tuple[str, ...], str]()

    def name_of(run: Run) -> str:
        """The same in whichever order its overrides were given."""
        name = _name(run, group_by)
        return first.setdefault(tuple(sorted(OVERRIDES.split(name))), name)

    games = dict[str, dict[tuple[str, float | None], None]]()
    for run in runs:
        games.setdefault(name_of(run), {}).update({(run.env, run.bound): None} if run.env else {})
    groups = dict[str, list[Run]]()
    for run in runs:
        name = name_of(run)
        # One that failed before it knew its game is of the first that its rung has.
        env, bound = (run.env, run.bound) if run.env else next(iter(games[name]), ("", None))
        ids = {env for env, _ in games[name]}
        shown = game(env) if len({*map(game, ids)}) == len(ids) else env
        of_game = f", {shown}" if len(ids) > 1 else ""
        to_bound = f", bound={bound}" if len({bound for _, bound in games[name]}) > 1 else ""
        groups.setdefault(f"{name}{of_game}{to_bound}", []).append(run)
    return groups


def _known(runs: Sequence[Run]) -> Run:
    """The first run that knows its game."""
    return next((run for run in runs if run.env), runs[0])


def _name(run: Run, group_by: str | None) -> str:
    if not group_by:
        return run.label
    value = run.value(group_by)
    # Without blanks, which part a label into overrides.
    return f"{group_by}={json.dumps(value, separators=(',', ':')) if isinstance(value, (list, dict)) else value}"


def _keys(node: dict[str, Any], prefix: str = "") -> Iterable[str]:
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _keys(value, f"{prefix}{key}.")


def shared_words(labels: Sequence[str]) -> list[str]:
    """The overrides that all of ``labels`` have, if there are several."""
    first, *others = [label.split(" ")[1:] for label in dict.fromkeys(labels)]
    return [word for word in first if all(word in other for other in others)] if others else []


def short(labels: list[str]) -> list[str]:
    """Names without the overrides that all of ``labels`` have, and with long numbers rounded if that tells them
    apart."""
    shared = shared_words(labels)
    words = [label.split(" ") for label in labels]
    names = [" ".join([first, *(word for word in rest if word not in shared)]) for first, *rest in words]
    rounded = [_LONG_NUMBER.sub(lambda found: f"{float(found[0]):.{DIGITS}g}", name) for name in names]
    return rounded if len(set(rounded)) == len(set(names)) else names


def compared_after(runs: Iterable[Run]) -> float | None:
    """The seconds for which all ``runs`` were trained that came to their end; if none did, all that have reported."""
    reported = [run for run in runs if run.means("time")]
    whole = [run for run in reported if run.ended_well and not run.pruned]
    return min((run.seconds for run in (whole or reported)), default=None)


def _scores(runs: Iterable[Run], after: float | None) -> list[float]:
    """The mean return of each run at ``after`` seconds, interpolated between the two reports around that time."""
    if after is None:
        return []
    curves = (run.means("time") for run in runs if run.seconds >= after)
    reported = [curve for curve in curves if curve and curve[0][0] <= after]
    return [float(np.interp(after, [x for x, _ in curve], [y for _, y in curve])) for curve in reported]


def _speeds(runs: Sequence[Run]) -> list[float]:
    ended = [run for run in runs if run.ended_well] or runs
    speeds = (run.summary["steps_per_second"] for run in ended)
    return [float(speed) for speed in speeds if speed is not None and math.isfinite(speed)]


def _time_to_solve(runs: Sequence[Run]) -> Estimate | None:
    known = [run for run in runs if run.solved or (run.bound is not None and (run.gave_up or run.seconds > 0))]
    # One that failed or was pruned would not have solved it any later, other than one that was ended by a limit.
    times = [(math.inf, False) if run.gave_up else run.time_to_solve for run in known]
    return estimate(statistics.median_time, times)


def book_figures() -> dict[str, Figures]:
    """The book's figures by the labels of the runs here; those of its printed table where that has them."""
    lines = [line for line in BOOK.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    figures = dict[str, Figures]()
    for row in csv.DictReader(lines):
        minutes = float(row["table_minutes"] or row["minutes"])
        seconds = 60 * minutes if row["solved"] == "yes" else math.inf
        for label in row["labels"].split(";"):
            figures[label] = Figures(float(row["table_fps"] or row["steps_per_second"]), seconds)
    return figures


def game(env: str) -> str:
    """The name of a game: ``Pong`` of ``PongNoFrameskip-v4`` and ``ALE/Pong-v5``."""
    return re.sub(r"^ALE/|(NoFrameskip)?-v\d+$", "", env) or "the game"
