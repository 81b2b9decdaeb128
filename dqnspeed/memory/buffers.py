"""The memory behind a replay: private to this process, or shared with actor processes."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import numpy as np

from dqnspeed.config.options import ConfigError
from dqnspeed.system import machine

Layout = Mapping[str, tuple[tuple[int, ...], np.dtype]]
ALIGNMENT = 64
SHARE_OF_FREE_MEMORY = 0.9  # the rest is for networks, batches and the system


def layout_bytes(layout: Layout) -> int:
    """Bytes that the arrays of ``layout`` take, aligned."""
    return sum(_aligned(math.prod(shape) * dtype.itemsize) for shape, dtype in layout.values())


def check_memory(layout: Layout, option: str, asked_for: int, unit: str, shared: bool) -> None:
    """Refuse a memory that would not fit, before anything is allocated.

    Args:
        option: what its size is proportional to; ``asked_for`` its value, in ``unit``.

    Raises:
        ConfigError: with what is asked, what is free, and what would fit.
    """
    asked, free, where = layout_bytes(layout), machine.available_memory(), "memory"
    if shared and Path("/dev/shm").is_dir():
        in_shm = shutil.disk_usage("/dev/shm").free
        if in_shm < free:
            free, where = in_shm, "shared memory (/dev/shm)"
    free = int(free * SHARE_OF_FREE_MEMORY)
    if asked > free:
        raise ConfigError(
            f"{option}={asked_for}: needs {asked / 1e9:.1f} GB of {where} and {free / 1e9:.1f} GB can be "
            f"had; at most {max(0, int(asked_for * free / asked))} {unit} would fit."
        )


class LocalBuffers:
    """Arrays of this process; pages are only taken once they are written."""

    def __init__(self, layout: Layout):
        self.arrays = {name: np.zeros(shape, dtype) for name, (shape, dtype) in layout.items()}

    def close(self) -> None:
        self.arrays = {}


class SharedBuffers:
    """The same arrays in one block of shared memory that spawned processes attach to by pickling this object.

    The creator calls :meth:`unlink` once everyone is attached: from then on the system frees the block with
    its last process, however that ends.
    """

    def __init__(self, layout: Layout):
        self._layout = dict(layout)
        self._block = shared_memory.SharedMemory(create=True, size=layout_bytes(layout))
        self._linked = True
        self.arrays = _views(self._block, self._layout)

    def unlink(self) -> None:
        if self._linked:
            self._linked = False
            self._block.unlink()

    def close(self) -> None:
        """Let go of the arrays; nobody may hold a view of them any more."""
        self.unlink()
        self.arrays = {}
        try:
            self._block.close()
        except BufferError:  # a view is still alive somewhere; the memory goes with it
            self._block._mmap = None  # type: ignore[attr-defined]

    def __getstate__(self) -> dict[str, Any]:
        return {"layout": self._layout, "name": self._block.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._layout = state["layout"]
        self._block = shared_memory.SharedMemory(name=state["name"])
        self._linked = False
        self.arrays = _views(self._block, self._layout)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _views(block: shared_memory.SharedMemory, layout: Layout) -> dict[str, np.ndarray]:
    views, offset = {}, 0
    for name, (shape, dtype) in layout.items():
        views[name] = np.ndarray(shape, dtype, buffer=block.buf, offset=offset)
        offset += _aligned(math.prod(shape) * dtype.itemsize)
    return views
