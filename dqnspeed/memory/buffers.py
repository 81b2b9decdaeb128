"""Arrays of a memory: private to this process, or shared with actor processes."""

from __future__ import annotations

import bisect
import errno
import math
import multiprocessing
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
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


def check_memory(needed: Callable[[int], int], option: str, asked_for: int, unit: str, shared: bool) -> None:
    """Check that a memory fits, before anything is allocated.

    Args:
        needed: bytes that it takes for a value of ``option``, which grow with it.
        asked_for: the value asked for, in ``unit``.

    Raises:
        ConfigError: it does not fit; names what is needed, what is free and what would fit.
    """
    asked, free, where = needed(asked_for), machine.available_memory(), "memory"
    if shared and Path("/dev/shm").is_dir():
        in_shm = shutil.disk_usage("/dev/shm").free
        if in_shm < free:
            free, where = in_shm, "shared memory (/dev/shm)"
    free = int(free * SHARE_OF_FREE_MEMORY)
    if asked > free:
        fits = bisect.bisect_right(range(1, asked_for), free, key=needed)  # how many of these do, so the largest
        raise ConfigError(
            f"{option}={asked_for}: needs {asked / 1e9:.1f} GB of {where} and {free / 1e9:.1f} GB can be "
            f"had; at most {fits} {unit} would fit."
        )


class LocalBuffers:
    """Arrays of this process; the system allocates a page when it is first written."""

    locks: Sequence[Any] = ()

    def __init__(self, layout: Layout):
        self.arrays = {name: np.zeros(shape, dtype) for name, (shape, dtype) in layout.items()}

    def close(self) -> None:
        self.arrays = {}


class SharedBuffers:
    """The same arrays in one block of shared memory, to which spawned processes attach by pickling this object.

    The creator calls :meth:`unlink` once all are attached; then the system frees the block when its last process
    ends, even if it is killed.

    Attributes:
        locks: one for each of ``writers`` processes, which write equally many lanes each, one after another.
    """

    def __init__(self, layout: Layout, writers: int = 1):
        context = multiprocessing.get_context("spawn")
        self.locks: Sequence[Any] = [context.Lock() for _ in range(writers)]
        self._layout = dict(layout)
        size = layout_bytes(layout)
        self._block = shared_memory.SharedMemory(create=True, size=size)
        self._linked = True
        try:
            _take_pages(self._block)
        except OSError as error:
            self._block.close()
            self.unlink()
            raise ConfigError(
                f"parallelism.transport=shared_memory: {size / 1e9:.2f} GB of shared memory could not be had "
                f"({error.strerror}); another run may use it. A container has more of it with --shm-size."
            ) from error
        self.arrays = _views(self._block, self._layout)

    def unlink(self) -> None:
        if self._linked:
            self._linked = False
            self._block.unlink()

    def close(self) -> None:
        """Free the arrays; no view of them may exist any more."""
        self.unlink()
        self.arrays = {}
        try:
            self._block.close()
        except BufferError:  # a view still exists; the memory is freed with it
            block: Any = self._block
            block._mmap = None

    def __getstate__(self) -> dict[str, Any]:
        return {"layout": self._layout, "name": self._block.name, "locks": self.locks}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._layout, self.locks = state["layout"], state["locks"]
        self._block = shared_memory.SharedMemory(name=state["name"])
        self._linked = False
        self.arrays = _views(self._block, self._layout)


def _take_pages(block: shared_memory.SharedMemory) -> None:
    """Have the system give ``block`` its pages now, where it can: one that is missing later ends whoever writes it."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(block._fd, 0, block.size)  # type: ignore[attr-defined]
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _views(block: shared_memory.SharedMemory, layout: Layout) -> dict[str, np.ndarray]:
    views, offset = {}, 0
    for name, (shape, dtype) in layout.items():
        views[name] = np.ndarray(shape, dtype, buffer=block.buf, offset=offset)
        offset += _aligned(math.prod(shape) * dtype.itemsize)
    return views
