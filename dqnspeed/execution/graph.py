"""Work on a CUDA device that is captured once and then launched as a whole (a CUDA graph)."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from dqnspeed.system.messages import first_line


class CaptureError(RuntimeError):
    """A CUDA graph that was asked for cannot be; the message is one sentence for the user."""

    def __init__(self, what: str, reason: str):
        super().__init__(f"execution.graph=true: {what} cannot be captured ({reason}). Use execution.graph=false.")


@contextlib.contextmanager
def refusals_of(what: str) -> Iterator[None]:
    """Raise :class:`CaptureError` if ``what`` is captured or prepared inside, and cannot be.

    The reason is the first error, of which others are consequences.
    """
    try:
        yield
    except RuntimeError as raised:
        error: BaseException = raised
        while error.__context__ is not None:
            error = error.__context__
        raise CaptureError(what, first_line(error)) from raised


Launch = Callable[[], None]  # does the captured work again
# Captures the work that a function launches, without doing it.
Capture = Callable[[Callable[[], object], torch.device], Launch]


class Capturing:
    """Captures graphs on a CUDA device.

    The graphs share their memory, so no result of one may be read after another ran.
    """

    def __init__(self) -> None:
        self._pool: Any = None

    def __call__(self, function: Callable[[], object], device: torch.device) -> Launch:
        """Capture the work that ``function`` launches; each launch reads and writes the same tensors.

        Raises:
            RuntimeError: the work cannot be captured, for example because the function waits for the device.
        """
        graph = torch.cuda.CUDAGraph()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            function()
        return graph.replay


def prepared(function: Callable[[], object], device: torch.device, last: bool = False) -> None:
    """Call ``function`` before its capture, on a stream beside the current one, which waits for the call.

    Args:
        last: the capture follows.

    Raises:
        RuntimeError: the function waits for the device and so cannot be captured; only if ``last``.
    """
    if device.type != "cuda":
        function()
        return
    current, beside = torch.cuda.current_stream(device), _beside(device)
    beside.wait_stream(current)
    try:
        with torch.cuda.stream(beside), refusing_waits() if last else contextlib.nullcontext():
            function()
    finally:
        current.wait_stream(beside)


@contextlib.contextmanager
def refusing_waits() -> Iterator[None]:
    """Context in which waiting for the CUDA device raises ``RuntimeError``."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode")  # torch warns of a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


@functools.cache
def _beside(device: torch.device) -> torch.cuda.Stream:
    """The only side stream of this process, since the allocator keeps memory for each stream."""
    return torch.cuda.Stream(device)


class LaunchThrottle:
    """Keeps the host at most two launches, or two rounds of launches, ahead of the device.

    Otherwise actors would act with weights that are much older than their count of updates says. New rows would wait
    behind hundreds of launches.
    """

    def __init__(self, device: torch.device):
        self._cuda = device.type == "cuda"
        self._events: list[torch.cuda.Event] = []

    def launched(self) -> None:
        """Wait for the launch before the last; called after each launch, or each round of launches."""
        if not self._cuda:
            return
        event = torch.cuda.Event()
        event.record()
        self._events.append(event)
        if len(self._events) > 2:
            self._events.pop(0).synchronize()
