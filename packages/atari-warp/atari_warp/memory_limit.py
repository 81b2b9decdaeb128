"""Memory that this process may still use, and whether consoles fit into it."""

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
    """Raise :class:`EmulatorError` if ``needed`` bytes for ``num_envs`` consoles exceed the memory of a Warp device."""
    free = device.free_memory if device.is_cuda else _free_memory()
    if needed > free:
        memory = f"{needed / 1e6:,.0f} MB of {device.alias} memory, but {free / 1e6:,.0f} MB are available"
        raise EmulatorError(f"num_envs={num_envs}: needs {memory}. Use fewer environments.")


def _free_memory() -> int:
    """Bytes available on this machine and within the limits of its container."""
    known = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with contextlib.suppress(OSError):
        available = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        known += [1024 * int(available[1])] if available else []
    for folder, (limit, used, cached) in _groups():
        with contextlib.suppress(OSError, ValueError):  # a limit of "max" is no number
            most, taken = (int((folder / name).read_text()) for name in (limit, used))
            stat = (folder / "memory.stat").read_text()
            reclaimable = re.search(rf"^{cached} (\d+)", stat, re.MULTILINE)
            known.append(most - taken + (int(reclaimable[1]) if reclaimable else 0))
    return max(0, min(known))


def _groups() -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Folders of cgroups that may limit the memory of this process, and the names of their files."""
    with contextlib.suppress(OSError):
        for line in OWN_CGROUPS.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            top, names = (CGROUPS / "memory", V1) if controllers else (CGROUPS, V2)
            inner = top / path.lstrip("/")  # in a container the path is the host's, and its own group is at the top
            for folder in {top, inner, *(above for above in inner.parents if above.is_relative_to(top))}:
                yield folder, names
