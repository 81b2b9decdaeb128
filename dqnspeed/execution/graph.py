"""Work on a CUDA device that is captured once and then launched as a whole (a CUDA graph)."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

from dqnspeed.system.messages import first_line


class CaptureError(RuntimeError):
    """A CUDA graph that was asked for cannot be; the message is one sentence for the user."""

    def __init__(self, what: str, reason: str):
        super().__init__(f"execution.graph=true: {what} cannot be captured ({reason}). Use execution.graph=false.")


@contextlib.contextmanager
def refusals_of(what: str) -> Iterator[None]:
    """Raise :class:`CaptureError` where ``what`` is captured inside, or prepared for that, and cannot be; the reason is
    the first error, of which others are consequences."""
    try:
        yield
    except RuntimeError as raised:
        error: BaseException = raised
        while error.__context__ is not None:
            error = error.__context__
        raise CaptureError(what, first_line(error)) from raised


class Launch(Protocol):
    """Does again what was captured."""

    def __call__(self) -> None: ...


# Captures what a function launches, without doing it.
Capture = Callable[[Callable[[], object], torch.device], Launch]


class Capturing:
    """Captures on a CUDA device. Its graphs share their memory, so nothing of one may be read after another ran."""

    def __init__(self) -> None:
        self._pool: Any = None

    def __call__(self, function: Callable[[], object], device: torch.device) -> Launch:
        """The graph of what ``function`` launches; it reads and writes the same tensors at each launch.

        Raises:
            RuntimeError: something in it cannot be captured, because it waits for the device, say.
        """
        graph = torch.cuda.CUDAGraph()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            function()
        return graph.replay


def prepared(function: Callable[[], object], device: torch.device, last: bool = False) -> None:
    """Call ``function`` as before a capture: on the stream beside the current one, which waits for it.

    Args:
        last: the capture follows.

    Raises:
        RuntimeError: the ``last`` time, if something in it waits for the device, and so cannot be captured.
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
    """Inside, what waits for the CUDA device raises ``RuntimeError``."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode")  # is a prototype, torch says once
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


@functools.cache
def _beside(device: torch.device) -> torch.cuda.Stream:
    """One for all of this process: the allocator keeps memory for each stream by itself."""
    return torch.cuda.Stream(device)


class Pace:
    """Keeps the host from running ahead of the device by more than two launches, or two rounds of them: else actors
    would act with weights that are much older than those counted, and rows that came in would wait behind hundreds of
    launches."""

    def __init__(self, device: torch.device):
        self._cuda = device.type == "cuda"
        self._events: list[torch.cuda.Event] = []

    def launched(self) -> None:
        """Called after each launch, or each round; waits for the one before the last."""
        if not self._cuda:
            return
        event = torch.cuda.Event()
        event.record()
        self._events.append(event)
        if len(self._events) > 2:
            self._events.pop(0).synchronize()
