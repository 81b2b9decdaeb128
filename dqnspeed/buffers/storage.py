"""Arrays of a buffer on the host: private to this process, or shared with actor processes."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dqnspeed.config.options import ConfigError
from dqnspeed.system import machine
from dqnspeed.system.messages import first_line

Layout = Mapping[str, tuple[tuple[int, ...], np.dtype]]  # shape and dtype of each array, by name
SHARE_OF_FREE_MEMORY = 0.9  # the rest is for networks, batches and the system
SHM_ADVICE = " A container has more of it with --shm-size."


class HostStorage:
    """Arrays of this process; the system allocates a page when it is first written."""

    locks: Sequence[Any] = ()

    def __init__(self, layout: Layout):
        self.arrays = {name: np.zeros(shape, dtype) for name, (shape, dtype) in layout.items()}

    def close(self) -> None:
        self.arrays = {}


class SharedStorage:
    """Arrays in shared memory, to which spawned processes attach by pickling this object.

    The system frees the memory when the last of these processes ends, even if it is killed.

    Args:
        writers: processes that write equally many environments each.

    Attributes:
        locks: one for each writer.
    """

    def __init__(self, layout: Layout, writers: int = 1):
        context = multiprocessing.get_context("spawn")
        self.locks: Sequence[Any] = [context.Lock() for _ in range(writers)]
        # Torch allocates all pages now: a page that is missing later would end the process that writes it.
        with sharing("parallelism.transport=shared_memory", layout_bytes(layout)):
            self._tensors = {
                name: torch.from_numpy(np.zeros(shape, dtype)).share_memory_()
                for name, (shape, dtype) in layout.items()
            }

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {name: tensor.numpy() for name, tensor in self._tensors.items()}

    def close(self) -> None:
        """Free the arrays once the last view of them is gone."""
        self._tensors = {}


def layout_bytes(layout: Layout) -> int:
    """Number of bytes of all arrays of ``layout``."""
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in layout.values())


def check_memory(needed: int, option: str, shared: bool) -> None:
    """Check that a buffer fits into the memory of this machine, before anything is allocated.

    Args:
        needed: number of bytes.
        option: the option that the number depends on, with its value.
        shared: the memory is shared with other processes.

    Raises:
        ConfigError: the buffer does not fit.
    """
    free, where, advice = machine.available_memory(), "memory", ""
    if shared and Path("/dev/shm").is_dir():
        in_shm = shutil.disk_usage("/dev/shm").free
        if in_shm < free:
            free, where, advice = in_shm, "shared memory (/dev/shm)", SHM_ADVICE
    free = int(free * SHARE_OF_FREE_MEMORY)
    if needed > free:
        raise ConfigError(
            f"{option}: needs {machine.format_bytes(needed)} of {where} and {machine.format_bytes(free)} can be had. "
            f"Use a smaller number.{advice}"
        )


@contextlib.contextmanager
def sharing(option: str, needed: int) -> Iterator[None]:
    """Raise :class:`ConfigError` inside if the system lacks ``needed`` bytes of shared memory for ``option``."""
    try:
        yield
    except RuntimeError as error:  # of torch
        raise ConfigError(
            f"{option}: {machine.format_bytes(needed)} of shared memory could not be had ({first_line(error)}); "
            f"another run may use it.{SHM_ADVICE}"
        ) from error
