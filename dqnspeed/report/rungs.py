"""Rungs: the runs of one label, their statistics, and their changes against a baseline and the book."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dqnspeed.config.options import ConfigError, nearest
from dqnspeed.config.schema import KINDS
from dqnspeed.report import statistics
from dqnspeed.report.runs import Run, read_csv
from dqnspeed.report.statistics import Estimate, estimate
from dqnspeed.tracking.run_folder import flat
from dqnspeed.tracking.trackers import hyperparameters

BASELINE = "baseline"
BOOK_CSV = Path(__file__).with_name("book_ladder.csv")
BOOK_TASK = "PongNoFrameskip-v4", 17
OVERRIDE_SEPARATOR = re.compile(r" (?=[+~]?[\w./@]+=)")  # values may contain blanks, too
CHOICE_OF_GAME = re.compile(r"\+*env(\.id)?=")
LONG_NUMBER = re.compile(r"(?<==)-?\d*\.\d{5,}(?:e[-+]?\d+)?(?= |$)")


class Performance(NamedTuple):
    """Speed and time to solve, or changes of both: 0.44 is 44 % more.

    An infinite time is longer than the runs were trained.
    """

    steps_per_second: float | None = None
    seconds_to_solve: float | None = None

    def change(self, other: Performance) -> Performance:
        """Changes against ``other``."""
        return Performance(*map(_change, self, other))


def _change(value: float | None, other: float | None) -> float | None:
    if value is None or not other or not math.isfinite(value) or not math.isfinite(other):
        return None
    return value / other - 1


@dataclass(frozen=True)
class Rung:
    """Runs of one task and protocol that share a label, or a value of ``group_by``.

    Runs of one label differ only in seeds, limits, evaluations and records.

    Attributes:
        number: position in the report, which decides the colour.
        name: the label without overrides that all rungs of the report share.
        recipe: the name without the game, the bound and the protocol.
        compared_at: seconds of training after which all runs of the task are compared.
    """

    number: int
    name: str
    label: str
    recipe: str
    runs: list[Run]
    compared_at: float | None

    @property
    def kind(self) -> list[str]:
        return [kind for kind in KINDS if any(kind in run.summary["kind"] for run in self.runs)]

    @property
    def task(self) -> tuple[str, float | None]:
        return _run_with_env(self.runs).task

    @property
    def bound(self) -> float | None:
        return self.task[1]

    @property
    def protocol(self) -> str | None:
        return _run_with_env(self.runs).protocol

    @property
    def num_solved(self) -> int:
        return sum(run.solved for run in self.runs)

    @property
    def longest_seconds(self) -> float:
        """Seconds of training of the longest run."""
        return max(run.seconds for run in self.runs)

    @property
    def is_lower_bound(self) -> bool:
        """Whether a run was killed and lost time that its clock did not count."""
        return any(bool(run.summary.get("time_is_lower_bound")) for run in self.runs)

    @property
    def differing_options(self) -> list[str]:
        """Options besides the seed in which the runs differ, such as limits; labels leave these out.

        Of a group with different options only the name is listed.
        """
        configs = [flat(hyperparameters(run.config)) for run in self.runs if run.config]
        shared = set.intersection(*map(set, configs)) if configs else set[str]()
        found = [key for key in shared if len({str(config[key]) for config in configs}) > 1]
        names = {key for key in found if key.endswith((".name", "env.id"))}
        groups = {"seed", "experiment", *(key.partition(".")[0] for key in names)}
        return sorted(names | {key for key in found if key.partition(".")[0] not in groups})

    @cached_property
    def steps_per_second(self) -> Estimate | None:
        """Median over the runs that ended well; over all runs if none did."""
        ended = [run for run in self.runs if run.ended_well] or self.runs
        speeds = (run.summary["steps_per_second"] for run in ended)
        return estimate(statistics.median, [speed for speed in speeds if speed is not None and math.isfinite(speed)])

    @cached_property
    def time_to_solve(self) -> Estimate | None:
        """Kaplan-Meier median in seconds of training; ``None`` without a bound."""
        runs = [run for run in self.runs if run.solved or (run.bound is not None and (run.never_solves or run.seconds))]
        times = [(math.inf, False) if run.never_solves else run.time_to_solve for run in runs]
        return estimate(statistics.median_time, times)

    @cached_property
    def scores(self) -> list[float]:
        """Mean return of each run at :attr:`compared_at`, between two reports on the line that joins them.

        Runs that were not trained so long, or had no mean return by then, have none.
        """
        at = self.compared_at
        if at is None:
            return []
        curves = [run.mean_returns("time") for run in self.runs if run.seconds >= at]
        reported = [curve for curve in curves if curve and curve[0][0] <= at]
        return [float(np.interp(at, [x for x, _ in curve], [y for _, y in curve])) for curve in reported]

    @cached_property
    def score(self) -> Estimate | None:
        """Interquartile mean of :attr:`scores`."""
        return estimate(statistics.interquartile_mean, self.scores)

    @property
    def performance(self) -> Performance:
        speed, time = self.steps_per_second, self.time_to_solve
        return Performance(speed.value if speed else None, time.value if time else None)

    @property
    def ended_well(self) -> bool:
        """Whether a run ended well."""
        return any(run.ended_well for run in self.runs)

    def is_comparable(self, baseline: Rung) -> bool:
        """Whether ``baseline`` is another rung of the same task."""
        return baseline is not self and baseline.task == self.task

    def change(self, baseline: Rung | None) -> Performance:
        """Changes against a comparable ``baseline`` that ended well."""
        if baseline is None or not (baseline.ended_well and self.is_comparable(baseline)):
            return Performance()
        return self.performance.change(baseline.performance)

    def improvement(self, baseline: Rung | None) -> Estimate | None:
        """Probability that a run of this rung has a higher score than a run of a comparable ``baseline``.

        Scores of different protocols are not compared.
        """
        comparable = baseline and self.is_comparable(baseline) and baseline.protocol == self.protocol
        others = baseline.scores if baseline and comparable else []
        return estimate(statistics.probability_of_improvement, self.scores, others)

    @property
    def book(self) -> Performance | None:
        """The book's figures of the same rung."""
        labels = {run.label for run in self.runs}
        return book_performance().get(labels.pop()) if self.task == BOOK_TASK and len(labels) == 1 else None


def rungs_of(runs: Sequence[Run], group_by: str | None = None) -> list[Rung]:
    """The rungs of ``runs``, in the order of their first runs.

    Raises:
        ConfigError: no run has the option ``group_by``.
    """
    groups = _groups(runs, group_by)
    names = short_names([first for first, _ in groups])
    recipes = short_names([_without_game(first) for first, _ in groups])
    tasks = dict[tuple[str, float | None], list[Run]]()
    for run in runs:
        tasks.setdefault(run.task, []).append(run)
    compared_at = {task: common_seconds(same_task) for task, same_task in tasks.items()}
    return [
        Rung(number, name + rest, first + rest, recipe, group, compared_at[_run_with_env(group).task])
        for number, (name, recipe, ((first, rest), group)) in enumerate(
            zip(names, recipes, groups.items(), strict=True)
        )
    ]


def baseline_of(rungs: Sequence[Rung], baseline: str | None = None) -> Rung | None:
    """The rung that others are compared with.

    Raises:
        ConfigError: no rung has the name ``baseline``.
    """
    wanted = baseline or BASELINE
    found = next((rung for rung in rungs if wanted in (rung.label, rung.name)), None)
    if found is None and baseline is not None:
        names = [rung.name for rung in rungs]
        near = nearest(baseline, list(dict.fromkeys([*names, *(rung.label for rung in rungs)])))
        raise ConfigError(f"baseline={baseline}: there is no such rung{near}. Choose one of {', '.join(names)}.")
    return found


def _groups(runs: Sequence[Run], group_by: str | None) -> dict[tuple[str, str], list[Run]]:
    """Runs by the labels of their rungs; a label's second part tells its tasks and protocols apart."""
    if group_by and all(run.value(group_by) is None for run in runs):
        known = sorted({key for run in runs for node in (run.config, run.summary) for key in (*node, *flat(node))})
        raise ConfigError(f"group_by={group_by}: no run has this option{nearest(group_by, known)}.")
    same_overrides = dict[tuple[str, ...], list[Run]]()
    for run in runs:  # the order of overrides makes no difference
        overrides = tuple(sorted(OVERRIDE_SEPARATOR.split(_group_label(run, group_by))))
        same_overrides.setdefault(overrides, []).append(run)
    groups = dict[tuple[str, str], list[Run]]()
    for group in same_overrides.values():
        first_label = _group_label(group[0], group_by)
        known_runs = [run for run in group if run.env]
        envs, bounds = {run.env for run in known_runs}, {run.bound for run in known_runs}
        has_unique_names = len(set(map(game_name, envs))) == len(envs)
        for run in group:
            like = run if run.env else _run_with_env(group)
            protocols = {other.protocol for other in known_runs if other.env == like.env}
            rest = f", {game_name(like.env) if has_unique_names else like.env}" if len(envs) > 1 else ""
            rest += f", bound={like.bound}" if len(bounds) > 1 else ""
            rest += f", protocol={like.protocol or 'unknown'}" if len(protocols) > 1 else ""
            groups.setdefault((first_label, rest), []).append(run)
    return groups


def _without_game(label: str) -> str:
    """``label`` without the overrides that choose a game."""
    words = OVERRIDE_SEPARATOR.split(label)
    return " ".join(word for word in words if not CHOICE_OF_GAME.match(word)) or label


def _run_with_env(runs: Sequence[Run]) -> Run:
    """The first run whose environment is known; the first run of all if none is."""
    return next((run for run in runs if run.env), runs[0])


def _group_label(run: Run, group_by: str | None) -> str:
    if not group_by:
        return run.label
    value = run.value(group_by)
    # No blanks, because they separate the overrides of a label.
    return f"{group_by}={json.dumps(value, separators=(',', ':')) if isinstance(value, (list, dict)) else value}"


def shared_overrides(labels: Sequence[str]) -> list[str]:
    """Overrides that all ``labels`` have; none if there is only one label."""
    first, *others = [label.split(" ")[1:] for label in dict.fromkeys(labels)]
    return [override for override in first if all(override in other for other in others)] if others else []


def short_names(labels: list[str]) -> list[str]:
    """``labels`` without their shared overrides, and with four digits of long numbers if names stay distinct."""
    shared = shared_overrides(labels)
    words = [label.split(" ") for label in labels]
    names = [" ".join([first, *(word for word in rest if word not in shared)]) for first, *rest in words]
    rounded = [LONG_NUMBER.sub(lambda number: f"{float(number[0]):.4g}", name) for name in names]
    return rounded if len(set(rounded)) == len(set(names)) else names


def common_seconds(runs: Iterable[Run]) -> float | None:
    """Seconds that all ``runs`` that came to their end were trained; if none did, all runs that have reported."""
    reported = [run for run in runs if run.mean_returns("time")]
    whole = [run for run in reported if run.ended_well and not run.is_pruned]
    return min((run.seconds for run in (whole or reported)), default=None)


@cache
def book_performance() -> dict[str, Performance]:
    """The book's figures by labels of runs; figures of its printed table come first."""
    found = dict[str, Performance]()
    for row in read_csv(BOOK_CSV):
        minutes = float(row["table_minutes"] or row["minutes"]) if row["solved"] == "yes" else math.inf
        speed = float(row["table_fps"] or row["steps_per_second"])
        found |= {label: Performance(speed, 60 * minutes) for label in row["labels"].split(";")}
    return found


def game_name(env: str) -> str:
    """``Pong`` for ``PongNoFrameskip-v4`` and for ``ALE/Pong-v5``."""
    return re.sub(r"^ALE/|(NoFrameskip)?-v\d+$", "", env) or "the game"
