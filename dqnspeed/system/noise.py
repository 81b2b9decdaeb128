"""What spoils speeds that are measured on this machine, each as a sentence."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil

from dqnspeed.system import machine

CPUS = Path("/sys/devices/system/cpu")
WATCH_S = 1.5  # length of a look at the other processes
BUSY_CORES, STOLEN = 0.1, 0.02  # least that is told: cores that others keep busy, and the share of time that is stolen
FEW = 3  # processes that are named
SPINNING = {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "infinite", "KMP_BLOCKTIME": "infinite"}


class NoiseWatch:
    """Looks at the machine: :meth:`before` and :meth:`after` measuring.

    Args:
        cpus: the system's folder on its processors; ``cgroups``: on the limits of containers.
    """

    def __init__(self, cpus: Path = CPUS, cgroups: Path = machine.CGROUPS):
        self._cpus, self._cgroups = cpus, cgroups
        self._counted = self._counters()

    def before(self) -> list[str]:
        """What may disturb from now on."""
        found = [*self._others(), *self._limits()]
        self._counted = self._counters()
        return found

    def after(self) -> list[str]:
        """What disturbs still, and what has disturbed since :meth:`before`."""
        now, before = self._counters(), self._counted
        found = [*self._others(), *self._limits()]
        times = now["total"] - before["total"]
        if times > 0 and (stolen := (now["steal"] - before["steal"]) / times) >= STOLEN:
            found.append(f"the hypervisor gave {stolen:.0%} of these cores' time to other machines.")
        if hot := now["hot"] - before["hot"]:
            found.append(f"the processor was slowed down {hot:.0f} times because it was hot.")
        if held := now["held"] - before["held"]:
            found.append(f"the container was held back {held:.0f} times at its quota of CPU time.")
        return found

    def _others(self) -> Iterator[str]:
        """Busy processes that are not ours."""
        ours = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
        begin, before = time.monotonic(), _processes()
        all_before, own_before = machine.cpu_seconds(), machine.own_cpu_seconds()
        time.sleep(WATCH_S)
        seconds = time.monotonic() - begin
        busy = (machine.cpu_seconds() - all_before - machine.own_cpu_seconds() + own_before) / seconds
        if busy < BUSY_CORES:
            return
        worked = Counter({
            f"{name} {pid}": used - before[pid, name]
            for (pid, name), used in _processes().items()
            if (pid, name) in before and pid not in ours
        })  # fmt: skip
        named = [name for name, used in worked.most_common(FEW) if used / seconds >= BUSY_CORES / 2]
        cores = len(machine.allowed_cores())
        who = f" ({', '.join(named)})" if named else ""
        yield f"other processes keep {busy:.1f} of {cores} core{'' if cores == 1 else 's'} busy{who}."

    def _limits(self) -> Iterator[str]:
        quota, allowed = machine.cpu_quota(mounted=self._cgroups), len(machine.allowed_cores())
        if quota < allowed:
            yield f"the container may use {quota:g} cores' time of the {allowed} cores that it sees."
        for name, active in SPINNING.items():
            if os.environ.get(name, "").lower() == active:  # those of a process that rests would take the others' cores
                yield f"{name}={active} has threads spin while they wait for work: unset it."
        files = self._cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")
        if slow := sorted({name for name in map(_read, files) if name} - {"performance"}):
            yield f"the processor's governor is {', '.join(slow)}: its clock follows the load."
        with contextlib.suppress(Exception):  # psutil cannot read every system's
            battery = psutil.sensors_battery()
            if battery is not None and not battery.power_plugged:
                yield f"the machine runs on its battery ({battery.percent:.0f} %)."

    def _counters(self) -> dict[str, float]:
        """Seconds of all cores, seconds stolen from them, and how often they were slowed down or held back so far."""
        times = psutil.cpu_times()
        throttled = [_number(path) for path in self._cpus.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")]
        stat = dict(line.split() for line in _read(self._cgroups / "cpu.stat").splitlines() if line.count(" ") == 1)
        return {
            "total": sum(times), "steal": getattr(times, "steal", 0.0), "hot": sum(throttled),
            "held": float(stat.get("nr_throttled", 0)),
        }  # fmt: skip


def _processes() -> dict[tuple[int, str], float]:
    """CPU seconds of every process, by its number and name."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            found[process.pid, process.name()] = times.user + times.system
    return found


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text().strip()
    return ""


def _number(path: Path) -> float:
    with contextlib.suppress(ValueError):
        return float(_read(path))
    return 0.0
