"""Arrays of a buffer: private to this process, or shared with actor processes."""

from __future__ import annotations

import bisect
import contextlib
import math
import multiprocessing
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dqnspeed.config.options import ConfigError
from dqnspeed.system import machine
from dqnspeed.system.messages import first_line

Layout = Mapping[str, tuple[tuple[int, ...], np.dtype]]
SHARE_OF_FREE_MEMORY = 0.9  # the rest is for networks, batches and the system
MORE_SHARED = " A container has more of it with --shm-size."


def layout_bytes(layout: Layout) -> int:
    """Bytes that the arrays of ``layout`` take."""
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in layout.values())


def check_memory(
    needed: Callable[[int], int], option: str, asked_for: int, unit: str, shared: bool, jobs: int = 1
) -> None:
    """Check that a memory fits, before anything is allocated.

    Args:
        needed: bytes that it takes for a value of ``option``, which grow with it.
        asked_for: the value asked for, in ``unit``.
        shared: other processes share it.
        jobs: how many jobs of a sweep take as much at a time.

    Raises:
        ConfigError: it does not fit; names what is needed, what is free and what would fit.
    """
    asked, free, where, more = needed(asked_for), machine.available_memory(), "memory", ""
    if shared and Path("/dev/shm").is_dir():
        in_shm = shutil.disk_usage("/dev/shm").free
        if in_shm < free:
            free, where, more = in_shm, "shared memory (/dev/shm)", MORE_SHARED
    free = int(free * SHARE_OF_FREE_MEMORY / jobs)
    if asked > free:
        fits = bisect.bisect_right(range(1, asked_for), free, key=needed)  # how many of these do, so the largest
        each = "" if jobs == 1 else f" for each of {jobs} jobs at a time"
        advice = f"; at most {fits} {unit} would fit" if fits else ""
        raise ConfigError(
            f"{option}={asked_for}: needs {machine.format_bytes(asked)} of {where} and {machine.format_bytes(free)} "
            f"can be had{each}{advice}.{more}"
        )


@contextlib.contextmanager
def sharing(option: str, needed: int) -> Iterator[None]:
    """Raise :class:`ConfigError` where the system has not the ``needed`` bytes of shared memory for ``option``."""
    try:
        yield
    except RuntimeError as error:  # torch's own
        raise ConfigError(
            f"{option}: {machine.format_bytes(needed)} of shared memory could not be had ({first_line(error)}); "
            f"another run may use it.{MORE_SHARED}"
        ) from error


class LocalBuffers:
    """Arrays of this process; the system allocates a page when it is first written."""

    locks: Sequence[Any] = ()

    def __init__(self, layout: Layout):
        self.arrays = {name: np.zeros(shape, dtype) for name, (shape, dtype) in layout.items()}

    def close(self) -> None:
        self.arrays = {}


class SharedBuffers:
    """Arrays in shared memory, to which spawned processes attach by pickling this object.

    The system frees the memory when the last of these processes ends, even if it is killed.

    Attributes:
        locks: one for each of ``writers`` processes, which write equally many lanes each, one after another.
    """

    def __init__(self, layout: Layout, writers: int = 1):
        context = multiprocessing.get_context("spawn")
        self.locks: Sequence[Any] = [context.Lock() for _ in range(writers)]
        # Torch has the system give all pages now: one that is missing later would end whoever writes it.
        with sharing("parallelism.transport=shared_memory", layout_bytes(layout)):
            self._tensors = {
                name: torch.from_numpy(np.zeros(shape, dtype)).share_memory_()
                for name, (shape, dtype) in layout.items()
            }

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {name: tensor.numpy() for name, tensor in self._tensors.items()}

    def close(self) -> None:
        """Free the arrays, once the last view of them is gone."""
        self._tensors = {}
