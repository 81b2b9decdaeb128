"""Disturbances of speed measurements on this machine, each as a sentence."""

from __future__ import annotations

import contextlib
import os
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


def disturbances(cpus: Path = CPUS, cgroups: Path = machine.CGROUPS) -> list[str]:
    """Sentences on what disturbs a measurement now; watches the machine for :data:`WATCH_S` seconds.

    Args:
        cpus: the system's folder of processors.
        cgroups: the system's folder of container limits.
    """
    return [*_busy_processes(), *_limits(cpus, cgroups)]


def _busy_processes() -> Iterator[str]:
    ours = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    begin, before, times_before = time.monotonic(), _processes(), psutil.cpu_times()
    all_before, own_before = machine.cpu_seconds(), machine.own_cpu_seconds()
    time.sleep(WATCH_S)
    seconds, times = time.monotonic() - begin, psutil.cpu_times()
    busy = (machine.cpu_seconds() - all_before - machine.own_cpu_seconds() + own_before) / seconds
    stolen = getattr(times, "steal", 0.0) - getattr(times_before, "steal", 0.0)
    share = stolen / max(sum(times) - sum(times_before), 1.0)
    if share >= MIN_STOLEN:
        yield f"the hypervisor gives {share:.0%} of these cores' time to other machines."
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


def _limits(cpus: Path, cgroups: Path) -> Iterator[str]:
    quota, allowed = machine.cpu_quota(mounted=cgroups), len(machine.allowed_cores())
    if quota < allowed:
        yield f"the container may use {quota:g} cores' time of the {allowed} cores that it sees."
    for name, active in SPINNING.items():
        if os.environ.get(name, "").lower() == active:
            yield f"{name}={active} lets waiting threads spin, which takes time from others: unset it."
    files = cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")
    if slow := sorted({read_text(file).strip() for file in files} - {"", "performance"}):
        yield f"the processor's governor is {', '.join(slow)}: its clock follows the load."
    with contextlib.suppress(Exception):  # psutil cannot read the battery of every system
        battery = psutil.sensors_battery()
        if battery is not None and not battery.power_plugged:
            yield f"the machine runs on its battery ({battery.percent:.0f} %)."


def _processes() -> dict[tuple[int, str], float]:
    """CPU seconds of every process, by its number and name."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            found[process.pid, process.name()] = times.user + times.system
    return found
