"""Time that earlier runs of a configuration took on this machine, and the time that a run like them has left."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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


def range_of(times: Sequence[float]) -> str:
    """The shortest and the longest of these seconds, in words."""
    scale, unit = (60, "min") if times[-1] >= 900 else (1, "s")
    low, high = (f"{end / scale:.0f}" for end in (times[0], times[-1]))
    return f"{high} {unit}" if low == high else f"{low} to {high} {unit}"


def _compared(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in hyperparameters(options).items() if key not in ("seed", "experiment")}
