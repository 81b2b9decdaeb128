"""What becomes of the memory that tensors leave behind."""

from __future__ import annotations

import ctypes

from dqnspeed.config.schema import ExecutionConfig

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # parameters of mallopt, in malloc.h
# Activations of a batch are smaller, and replay memories that are to take pages only as they fill are larger.
KEPT = 256 << 20
MOST = (1 << 31) - 1


def keep_memory(execution: ExecutionConfig) -> None:
    """Have the C library keep the memory of tensors that are freed from now on, if ``execution.keep_memory`` says so.

    By itself glibc gives memory above some size back to the system at once, and the next tensor's pages are mapped and
    cleared anew: a fifth and more of an update's time where batches are large. Other C libraries are left alone.
    """
    if not execution.keep_memory:
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(MMAP_THRESHOLD, KEPT)
    mallopt(TRIM_THRESHOLD, MOST)
