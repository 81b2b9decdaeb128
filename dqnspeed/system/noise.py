"""Disturbances of speed measurements on this machine, each as a sentence."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil

from dqnspeed.system import machine
from dqnspeed.system.machine import read_text

CPUS = Path("/sys/devices/system/cpu")
WATCH_S = 1.5  # seconds for which other processes are watched
MIN_BUSY_CORES, MIN_STOLEN = 0.1, 0.02  # reported from: cores kept busy by others, share of time that was stolen
MAX_NAMES = 3  # of processes in a sentence
SPINNING = {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "infinite", "KMP_BLOCKTIME": "infinite"}


class NoiseWatch:
    """Watches the machine: call :meth:`before` and :meth:`after` measuring.

    Args:
        cpus: the system's folder of processors; ``cgroups``: its folder of container limits.
    """

    def __init__(self, cpus: Path = CPUS, cgroups: Path = machine.CGROUPS):
        self._cpus, self._cgroups = cpus, cgroups
        self._before = self._counters()

    def before(self) -> list[str]:
        """Sentences on present disturbances."""
        found = [*self._busy_processes(), *self._limits()]
        self._before = self._counters()
        return found

    def after(self) -> list[str]:
        """Sentences on present disturbances, and on those since :meth:`before`."""
        now = self._counters()
        found = [*self._busy_processes(), *self._limits()]
        change = {name: now[name] - self._before[name] for name in now}
        if change["total"] > 0 and (stolen := change["stolen"] / change["total"]) >= MIN_STOLEN:
            found.append(f"the hypervisor gave {stolen:.0%} of these cores' time to other machines.")
        if change["overheated"]:
            found.append(f"the processor was slowed down {change['overheated']:.0f} times because it was hot.")
        if change["throttled"]:
            found.append(f"the container was held back {change['throttled']:.0f} times at its quota of CPU time.")
        return found

    def _busy_processes(self) -> Iterator[str]:
        ours = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
        begin, before = time.monotonic(), _processes()
        all_before, own_before = machine.cpu_seconds(), machine.own_cpu_seconds()
        time.sleep(WATCH_S)
        seconds = time.monotonic() - begin
        busy = (machine.cpu_seconds() - all_before - machine.own_cpu_seconds() + own_before) / seconds
        if busy < MIN_BUSY_CORES:
            return
        worked = Counter({
            f"{name} {pid}": used - before[pid, name]
            for (pid, name), used in _processes().items()
            if (pid, name) in before and pid not in ours
        })  # fmt: skip
        named = [name for name, used in worked.most_common(MAX_NAMES) if used / seconds >= MIN_BUSY_CORES / 2]
        cores = len(machine.allowed_cores())
        who = f" ({', '.join(named)})" if named else ""
        yield f"other processes keep {busy:.1f} of {cores} core{'' if cores == 1 else 's'} busy{who}."

    def _limits(self) -> Iterator[str]:
        quota, allowed = machine.cpu_quota(mounted=self._cgroups), len(machine.allowed_cores())
        if quota < allowed:
            yield f"the container may use {quota:g} cores' time of the {allowed} cores that it sees."
        for name, active in SPINNING.items():
            if os.environ.get(name, "").lower() == active:
                yield f"{name}={active} lets waiting threads spin, which takes time from others: unset it."
        files = self._cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")
        if slow := sorted({read_text(file).strip() for file in files} - {"", "performance"}):
            yield f"the processor's governor is {', '.join(slow)}: its clock follows the load."
        with contextlib.suppress(Exception):  # psutil cannot read the battery of every system
            battery = psutil.sensors_battery()
            if battery is not None and not battery.power_plugged:
                yield f"the machine runs on its battery ({battery.percent:.0f} %)."

    def _counters(self) -> dict[str, float]:
        """Seconds of all cores, seconds stolen from them, and how often they were slowed down or held back so far."""
        times = psutil.cpu_times()
        overheated = [read_text(path) for path in self._cpus.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")]
        throttled = re.search(r"^nr_throttled (\d+)", read_text(self._cgroups / "cpu.stat"), re.MULTILINE)
        return {
            "total": sum(times), "stolen": getattr(times, "steal", 0.0),
            "overheated": sum(int(count) for count in overheated if count.strip().isdigit()),
            "throttled": int(throttled[1]) if throttled else 0,
        }  # fmt: skip


def _processes() -> dict[tuple[int, str], float]:
    """CPU seconds of every process, by its number and name."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            found[process.pid, process.name()] = times.user + times.system
    return found
