"""Disturbances of speed measurements on this machine, each as a sentence."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from dqnspeed.system import machine

WATCH_S = 1.5  # seconds for which other processes are watched
MIN_BUSY_CORES, MIN_STOLEN = 0.1, 0.02  # reported from: cores kept busy by others, share of time that was stolen


def disturbances(cgroups: Path = machine.CGROUPS) -> list[str]:
    """Sentences on what disturbs a measurement now; watches the machine for :data:`WATCH_S` seconds.

    Args:
        cgroups: the system's folder of container limits.
    """
    found, quota, allowed = [*_busy_processes()], machine.cpu_quota(mounted=cgroups), len(machine.allowed_cores())
    if quota < allowed:
        found.append(f"the container may use {quota:g} cores' time of the {allowed} cores that it sees.")
    return found


def _busy_processes() -> Iterator[str]:
    begin, times_before = time.monotonic(), psutil.cpu_times()
    all_before, own_before = machine.cpu_seconds(), machine.own_cpu_seconds()
    time.sleep(WATCH_S)
    seconds, times = time.monotonic() - begin, psutil.cpu_times()
    busy = (machine.cpu_seconds() - all_before - machine.own_cpu_seconds() + own_before) / seconds
    stolen = getattr(times, "steal", 0.0) - getattr(times_before, "steal", 0.0)
    share = stolen / max(sum(times) - sum(times_before), 1.0)
    if share >= MIN_STOLEN:
        yield f"the hypervisor gives {share:.0%} of these cores' time to other machines."
    if busy >= MIN_BUSY_CORES:
        cores = len(machine.allowed_cores())
        yield f"other processes keep {busy:.1f} of {cores} core{'' if cores == 1 else 's'} busy."
