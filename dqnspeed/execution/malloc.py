"""Memory that freed tensors leave behind."""

from __future__ import annotations

import ctypes

from dqnspeed.config.schema import ExecutionConfig

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # parameters of mallopt, in malloc.h
# Activations of a batch are smaller. Replays are larger, and so still take their pages only as they fill.
MAX_KEPT_BYTES = 256 << 20
MAX_TRIM_BYTES = (1 << 31) - 1


def keep_memory(execution: ExecutionConfig) -> None:
    """Let glibc keep the memory of freed tensors, if ``execution.keep_memory`` says so.

    Without this call glibc returns large blocks to the system at once, and pages of the next tensor are mapped and
    cleared again. That takes a fifth or more of an update with a large batch. Other C libraries are not changed.
    """
    if not execution.keep_memory:
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(MMAP_THRESHOLD, MAX_KEPT_BYTES)
    mallopt(TRIM_THRESHOLD, MAX_TRIM_BYTES)
