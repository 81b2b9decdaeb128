"""Which line pays here: the choices that are tried, the one that is recommended, and whether it holds its promise."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from dqnspeed.bench.measuring import severest
from dqnspeed.bench.pairs import interval
from dqnspeed.bench.plan import Plan
from dqnspeed.bench.result import Interval, Measurement, Pair, Recommendation, Result
from dqnspeed.config import changes
from dqnspeed.config.options import ConfigError
from dqnspeed.system import shell
from dqnspeed.tracking.run_folder import DamagedError, read_summary

SAFE = (changes.EXACT, changes.EQUIVALENT)
WIDER = (*SAFE, changes.ALGORITHM)  # with allow=algorithm
PARTS = ("backend", "execution", "threads")  # axes that are exact or equivalent
TOGETHER = 6  # rungs that :func:`tried` tries at most beside those of the axes
Measure = Callable[[Sequence[str]], Measurement]


def tried(plan: Plan, measure: Measure) -> None:
    """Try each choice alone, then those that pay together, and these with each way to share the work."""
    best = dict[str, tuple[str, ...]]()
    axes = plan.axes()
    for axis, choices in axes.items():
        rows = [(choice, measure(choice)) for choice in choices]
        paid = [(row.ratio.median, choice) for choice, row in rows if row.ratio and row.ratio.low > 1]
        if paid:
            best[axis] = max(paid)[1]
    parts = [best[axis] for axis in PARTS if axis in best]
    for count in range(2, len(parts) + 1):
        measure(tuple(itertools.chain(*parts[:count])))
    # Games on threads overlap with the learner in its process.
    on_threads = best.get("backend", (axes.get("backend") or [()])[0])
    with_execution = (*on_threads, *best.get("execution", ()))
    games = (axes.get("num_envs") or [()])[0]
    for way in axes.get("parallelism", []):
        if with_execution:
            measure((*with_execution, *way))
        if games:
            measure((*with_execution, *way, *games))


def chosen(
    plan: Plan, result: Result, allowed: Collection[str], without: Collection[Sequence[str]] = ()
) -> Measurement | None:
    """The line to recommend of the rungs measured, or ``None`` if none of the ``allowed`` kinds pays beyond noise.

    Of those that cannot be told from the best one, it is the one with the fewest overrides: what adds nothing that can
    be told from noise is left out. A single slow slice of the reference makes an interval wide: its median must lie in
    that of the best one, too.

    Args:
        without: overrides that are not to be chosen.
    """
    fitting = [
        (row, row.ratio)
        for row in result.measurements
        if row.group == "rungs" and row.ratio and row.ratio.low > 1 and row.overrides not in without
        if _is_allowed(plan, row.overrides, allowed)
    ]  # fmt: skip
    if not fitting:
        return None
    _, best = max(fitting, key=lambda pair: pair[1].median)
    near = [(row, ratio) for row, ratio in fitting if ratio.high >= best.median and ratio.median >= best.low]
    return min(near, key=lambda pair: (len(pair[0].overrides), -pair[1].median))[0]


def _is_allowed(plan: Plan, overrides: Sequence[str], allowed: Collection[str]) -> bool:
    try:
        return set(plan.kinds(overrides)) <= set(allowed)
    except ConfigError:  # a row that was measured with an extra, or a version, that is here no more
        return False


def recommendation(plan: Plan, row: Measurement, expected: Interval) -> Recommendation:
    """``row`` as a line to paste, with the kind of each of its parts."""
    own = list(row.overrides)
    line = shell.command("train", *plan.to_paste(*own))
    kinds = {override: severest(_kinds(plan, override)) for override in own}
    return Recommendation(own, line, kinds, expected)


def _kinds(plan: Plan, override: str) -> list[str]:
    if "." in override.partition("=")[0]:
        return changes.kinds([changes.EXACT], changes.keys_of([override]))
    return plan.kinds([override])


def nothing(
    plan: Plan, sentence: str = "Nothing that was allowed is faster than the baseline beyond noise."
) -> Recommendation:
    line = shell.command("train", *plan.overrides)
    return Recommendation([], line, {}, Interval(1.0, 1.0, 1.0), sentence=sentence)


def more_if_allowed(
    plan: Plan, result: Result, allowed: Collection[str], gain: float, without: Sequence[Sequence[str]] = ()
) -> str:
    """A sentence on what a line that is not ``allowed`` would gain, if it is more; else empty. ``without`` are the
    overrides of lines that were tried."""
    row = chosen(plan, result, WIDER, without)
    if row is None or row.ratio is None or row.ratio.low <= gain:
        return ""
    if _is_allowed(plan, row.overrides, allowed):
        return ""
    return f"allow=algorithm would allow {' '.join(row.overrides)}, {row.ratio.median:.2f}×."


def checked(found: Recommendation, pairs: Sequence[Pair]) -> Recommendation:
    """``found`` with the gain of whole trainings, pairs of speeds of the baseline and of the line."""
    measured = interval([value / before for before, value in pairs if before and value])
    if measured is None:
        return found
    agrees = measured.low <= found.expected.high and found.expected.low <= measured.high  # the intervals meet
    said = "as expected" if agrees else "which is not what was expected"
    gain = f"{measured.median:.2f}× ({measured.low:.2f}–{measured.high:.2f})"
    sentence = f"Whole trainings, end to end, gained {gain}, {said}."
    return dataclasses.replace(found, measured=measured, sentence=sentence)


class TrainingError(Exception):
    """A whole training failed; the message is one sentence without its full stop."""


def train(overrides: Sequence[str], seconds: float, limit_s: float) -> float:
    """Agent steps per second, after its warm-up, of a whole ``dqnspeed.train`` that trains for ``seconds``.

    Raises:
        TrainingError: it failed, or took longer than ``limit_s``.
    """
    with tempfile.TemporaryDirectory(prefix="dqnspeed-bench-") as made, tempfile.TemporaryFile("w+") as log:
        folder = Path(made) / "run"
        command = [*overrides, f"stop.max_minutes={seconds / 60}", f"hydra.run.dir='{folder}'"]
        process = subprocess.Popen(
            [sys.executable, "-m", "dqnspeed.train", *command],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired as error:
            raise TrainingError(f"a training of {seconds:g} s had not ended after {limit_s:g} s") from error
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        try:
            summary = read_summary(folder)
            speed, updates = summary["steps_per_second"], summary["updates"]
        except (DamagedError, KeyError) as error:
            log.seek(0)
            last = [line.strip() for line in log if line.strip()][-1:] or [f"exit code {process.returncode}"]
            raise TrainingError(f"a training left no result ({last[0][:200].rstrip('.')})") from error
        if process.returncode or not speed:
            raise TrainingError(f"a training ended with exit code {process.returncode} and {speed} steps/s")
        if not updates:
            raise TrainingError(f"a training of {seconds:g} s came to no update")
        return float(speed)
