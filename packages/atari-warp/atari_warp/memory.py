"""Whether so many consoles fit into memory."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from atari_warp.games import EmulatorError

CGROUPS, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
V2 = ("memory.max", "memory.current", "inactive_file")


def check_memory(num_envs: int, needed: int, device: Any) -> None:
    """Raise :class:`EmulatorError` if the ``needed`` bytes of ``num_envs`` games do not fit on Warp's ``device``."""
    free = device.free_memory if device.is_cuda else _free_memory()
    if needed > free:
        there = f"{device.alias}'s memory, of which {free / 1e6:,.0f} MB may be used"
        raise EmulatorError(f"num_envs={num_envs}: needs {needed / 1e6:,.0f} MB of {there}.")


def _free_memory() -> int:
    """Bytes that are free on this machine, where it says so, and no more than it has or its container may use."""
    known = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with contextlib.suppress(OSError):
        said = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        known += [1024 * int(said[1])] if said else []
    for folder, (limit, used, cached) in _groups():
        with contextlib.suppress(OSError, ValueError):  # "max" is none
            most, taken = (int((folder / name).read_text()) for name in (limit, used))
            stat = (folder / "memory.stat").read_text()
            given_back = re.search(rf"^{cached} (\d+)", stat, re.MULTILINE)  # when it is needed
            known.append(most - taken + (int(given_back[1]) if given_back else 0))
    return max(0, min(known))


def _groups() -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """The folders of this process' cgroups that may limit its memory, and the names of their files."""
    with contextlib.suppress(OSError):
        for line in OWN_CGROUPS.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            top, names = (CGROUPS / "memory", V1) if controllers else (CGROUPS, V2)
            inner = top / path.lstrip("/")  # the path is the host's, where a container's own is mounted at the top
            for folder in {top, inner, *(above for above in inner.parents if above.is_relative_to(top))}:
                yield folder, names
