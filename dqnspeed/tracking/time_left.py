"""Time that earlier runs of a configuration took on this machine, and the time that a run like them has left."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from dqnspeed.config.schema import StopConfig
from dqnspeed.tracking.run_folder import RUNS, SUMMARY, DamagedError, holding, read_config, read_summary
from dqnspeed.tracking.trackers import hyperparameters

MAX_RUNS = 50  # newest runs that are read, by the date in their folders' names
SAME_MACHINE = ("cpu", "cores", "device", "gpu")


def earlier_times(options: Mapping[str, Any], machine: Mapping[str, Any]) -> list[float]:
    """Seconds that earlier runs took to solve, evaluations included; infinite for a run that met a limit.

    Earlier runs are in ``outputs/`` and ``multirun/``, had this machine to themselves, and differ in their seed and
    their recording only. Runs that cannot be read are skipped.

    Args:
        options: configuration as plain data.
        machine: result of :func:`dqnspeed.system.machine.describe`.
    """
    times, wanted = list[float](), _compared(options)
    for folder in sorted(holding(map(Path, RUNS), SUMMARY), key=lambda folder: folder.parts[1:])[-MAX_RUNS:]:
        with contextlib.suppress(DamagedError, AttributeError, KeyError, TypeError, ValueError):
            summary = read_summary(folder)
            same = summary["benchmark"] and all(summary["machine"][name] == machine[name] for name in SAME_MACHINE)
            if same and _compared(read_config(folder)) == wanted:
                if summary["solved"]:
                    times.append(float(summary["time_to_solve_s"]) + float(summary["eval_time_s"]))
                elif summary["stopped_by"] in ("max_minutes", "max_steps"):
                    times.append(float("inf"))
    return sorted(times)


class TimeLeft:
    """The time that a run has left: as in earlier runs, or to the nearer limit.

    Args:
        times: seconds that earlier runs took to solve, in ascending order; infinite for a run that met a limit.
    """

    def __init__(self, stop: StopConfig, times: Sequence[float] = ()):
        self._stop, self._num_earlier = stop, len(times)
        self._solved = [seconds for seconds in times if math.isfinite(seconds)]
        self._usual = self._solved if 2 * len(self._solved) >= len(times) else []

    @property
    def earlier(self) -> str:
        """A sentence on the earlier runs; empty if none was solved."""
        if not self._solved:
            return ""
        runs = f"{self._num_earlier} earlier run{'' if self._num_earlier == 1 else 's'}"
        return f"solved after {range_of(self._solved)} here ({len(self._solved)} of {runs})"

    def until(self, step: int, seconds: float, steps_per_second: float) -> tuple[float, str]:
        """Share of the time used up, and the time left in words."""
        left = [usual - seconds for usual in self._usual if usual > seconds]
        if left:
            return seconds / self._usual[-1], f"usually {range_of(left)} left"
        max_steps, max_minutes, done = self._stop.max_steps, self._stop.max_minutes, 0.0
        if max_minutes:
            done = seconds / (60 * max_minutes)
            left.append(60 * max_minutes - seconds)
        if max_steps:
            done = max(done, step / max_steps)
            left += [(max_steps - step) / steps_per_second] if steps_per_second > 0 else []
        if not left:
            return done, "?" if max_steps else "no limit"
        time_left = timedelta(seconds=max(0, int(min(left))))
        return done, f"{time_left} left" if self._stop.reward_bound is None else f"limit in {time_left}"


def range_of(times: Sequence[float]) -> str:
    """The shortest and the longest of these seconds, in words."""
    scale, unit = (60, "min") if times[-1] >= 900 else (1, "s")
    low, high = (f"{end / scale:.0f}" for end in (times[0], times[-1]))
    return f"{high} {unit}" if low == high else f"{low} to {high} {unit}"


def _compared(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in hyperparameters(options).items() if key not in ("seed", "experiment")}
