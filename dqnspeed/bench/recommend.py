"""Choosing the recommended command: overrides to try, the best of them, and a check by whole trainings."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from dqnspeed.bench.measured_process import last_line
from dqnspeed.bench.plan import TRAININGS, Plan
from dqnspeed.bench.report import times
from dqnspeed.bench.result import Interval, Measurement, Recommendation, Result
from dqnspeed.cli.errors import RunError
from dqnspeed.cli.sweep_record import quoted
from dqnspeed.config import changes
from dqnspeed.system import messages
from dqnspeed.tracking.run_folder import DamagedError, read_summary

SAME_LEARNING = (changes.EXACT, changes.EQUIVALENT)  # kinds of change that are recommended
ANY_ALGORITHM = (*SAME_LEARNING, changes.ALGORITHM)  # with allow=algorithm
COMBINED_CHOICES = ("backend", "execution", "threads")
MAX_COMBINATIONS = 6  # trainings that try_choices measures besides single choices
NO_GAIN = Interval(1.0, 1.0, 1.0)


def try_choices(plan: Plan, measure: Callable[[Sequence[str]], Measurement]) -> None:
    """Measure each choice alone, the best ones together, and these with each parallelism.

    Args:
        measure: measures a training with the given overrides.
    """
    best = dict[str, tuple[str, ...]]()
    choices = plan.choices()
    for name, tried in choices.items():
        rows = [(overrides, measure(overrides)) for overrides in tried]
        faster = [(row.ratio.median, overrides) for overrides, row in rows if row.ratio and row.ratio.low > 1]
        if faster:
            best[name] = max(faster)[1]
    combined = [best[name] for name in COMBINED_CHOICES if name in best]
    for count in range(2, len(combined) + 1):
        measure(tuple(itertools.chain(*combined[:count])))
    backend = best.get("backend") or next(iter(choices.get("backend", [])), ())  # threads play beside the learner
    parts = (*backend, *best.get("execution", ()))
    num_envs = next(iter(choices["num_envs"]), ())
    for parallelism in choices.get("parallelism", []):
        if parts:
            measure((*parts, *parallelism))
        if num_envs:
            measure((*parts, *parallelism, *num_envs))


def choose(
    plan: Plan, result: Result, allowed: Collection[str], without: Collection[Sequence[str]] = ()
) -> Measurement | None:
    """The training to recommend; ``None`` if no ``allowed`` change is faster than the baseline beyond noise.

    Of the trainings that noise cannot separate from the fastest one, choose the one with the fewest overrides. Its
    median must be within the interval of the fastest one, because one slow slice of the reference widens intervals.

    Args:
        without: overrides that were tried before.
    """
    faster = [
        (row, row.ratio)
        for row in result.measurements
        if row.group == TRAININGS and row.ratio and row.ratio.low > 1 and row.overrides not in without
        if set(plan.kinds(row.overrides)) <= set(allowed)
    ]  # fmt: skip
    if not faster:
        return None
    best = max((ratio for _, ratio in faster), key=lambda ratio: ratio.median)
    near = [(row, ratio) for row, ratio in faster if ratio.high >= best.median and ratio.median >= best.low]
    return min(near, key=lambda pair: (len(pair[0].overrides), -pair[1].median))[0]


def recommendation(
    plan: Plan, overrides: Sequence[str] = (), expected: Interval = NO_GAIN, sentence: str = ""
) -> Recommendation:
    """The command with ``overrides``, by default the baseline, and the kind of change of each override."""
    line = messages.command("train", *plan.command_overrides(*overrides))
    kinds = {override: plan.kinds([override], overrides[:number])[-1] for number, override in enumerate(overrides)}
    return Recommendation(list(overrides), line, kinds, expected, sentence=sentence)


def with_check(found: Recommendation, measured: Interval | None) -> Recommendation:
    """``found`` with the gain ``measured`` in whole trainings, and whether it was expected."""
    if measured is None:
        return found
    overlap = measured.low <= found.expected.high and found.expected.low <= measured.high
    verdict = "as expected" if overlap else "which is not what was expected"
    sentence = f"Whole trainings, end to end, gained {times(measured)}, {verdict}."
    return dataclasses.replace(found, measured=measured, sentence=sentence)


def train(overrides: Sequence[str], seconds: float, limit_s: float) -> float:
    """Agent steps per second of ``dqnspeed.train``, after its warm-up.

    Args:
        seconds: duration of the training; ``limit_s``: most seconds until the process has ended.

    Raises:
        RunError: the training failed, or took too long.
    """
    with tempfile.TemporaryDirectory(prefix="dqnspeed-bench-") as folder:
        command = [
            sys.executable, "-m", "dqnspeed.train", *overrides, f"stop.max_minutes={seconds / 60}",
            f"hydra.run.dir={quoted(f'{folder}/run')}",
        ]  # fmt: skip
        try:
            process = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                timeout=limit_s, start_new_session=True,
            )  # fmt: skip
            summary = read_summary(Path(folder, "run"))
        except subprocess.TimeoutExpired as error:
            raise RunError(f"a training of {seconds:g} s had not ended after {limit_s:g} s.") from error
        except DamagedError as error:
            raise RunError(f"a training left no result ({last_line(process.stdout)}).") from error
    speed, updates = summary["steps_per_second"], summary["updates"]
    if process.returncode or not speed or not updates:
        raise RunError(f"a training ended with exit code {process.returncode}, {updates} updates, {speed} steps/s.")
    return float(speed)
