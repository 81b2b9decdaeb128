"""Transfer of arrays to a device, and measurement of the device's time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor

ALIGNMENT = 64  # of what is packed, in bytes


class ToDevice:
    """Moves arrays to the learner's device.

    On a CPU a tensor shares the array's memory. On CUDA all arrays of a call are packed into one page-locked buffer
    and cross in one asynchronous copy. Of two buffers, one is filled again after its last copy has finished.

    Args:
        beside: copy on a stream of its own, while the device computes; the next launches wait for the copy.
    """

    def __init__(self, device: torch.device, pin_memory: bool, beside: bool = False):
        self._device = device
        self._pinned = pin_memory and device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if beside and device.type == "cuda" else None
        self._buffers: list[Tensor | None] = [None, None]
        self._copied: list[torch.cuda.Event | None] = [None, None]
        self._turn = 0

    def __call__(self, arrays: Mapping[str, np.ndarray | Tensor]) -> dict[str, Tensor]:
        """The arrays as tensors on the device; tensors that are there already are returned as they are."""
        tensors = {name: a if isinstance(a, Tensor) else torch.from_numpy(a) for name, a in arrays.items()}
        here = {name: tensor for name, tensor in tensors.items() if tensor.device.type != self._device.type}
        return tensors | (self._moved(here) if here else {})

    def _moved(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        if self._device.type == "cuda" and torch.cuda.is_current_stream_capturing():  # the graph would repeat this copy
            raise RuntimeError(f"{next(iter(tensors))} comes from the host at each update")
        if not self._pinned:
            return {name: tensor.to(self._device) for name, tensor in tensors.items()}
        self._turn ^= 1
        done, buffer, size = self._copied[self._turn], self._buffers[self._turn], packed_size(tensors)
        if done is not None:
            done.synchronize()
        if buffer is None or len(buffer) < size:
            buffer = self._buffers[self._turn] = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        pack(tensors, buffer)
        computing = torch.cuda.current_stream(self._device)
        stream = self._stream or computing
        with torch.cuda.stream(stream):
            moved = buffer[:size].to(self._device, non_blocking=True)
            event = self._copied[self._turn] = torch.cuda.Event()
            event.record(stream)
        if stream is not computing:
            computing.wait_event(event)
            moved.record_stream(computing)
        return unpack(tensors, moved)


def packed_size(tensors: Mapping[str, Tensor]) -> int:
    """Number of bytes of a buffer for all ``tensors``."""
    return sum(_aligned(tensor) for tensor in tensors.values())


def pack(tensors: Mapping[str, Tensor], buffer: Tensor) -> None:
    """Copy all ``tensors`` into ``buffer``, ``(bytes,) uint8``, one after another."""
    for name, part in unpack(tensors, buffer).items():
        part.copy_(tensors[name])


def unpack(like: Mapping[str, Tensor], buffer: Tensor) -> dict[str, Tensor]:
    """Views of ``buffer``, filled by :func:`pack`, with the shapes and dtypes of ``like``."""
    parts, begin = {}, 0
    for name, tensor in like.items():
        part = buffer[begin : begin + tensor.numel() * tensor.element_size()]
        parts[name] = part.view(tensor.dtype).view(tensor.shape)
        begin += _aligned(tensor)
    return parts


def _aligned(tensor: Tensor) -> int:
    return -(-tensor.numel() * tensor.element_size() // ALIGNMENT) * ALIGNMENT


class DeviceTimer:
    """Sums the seconds of a CUDA device for the work launched in ``with timer.running(): ...``.

    Launches return at once, so the host's clock cannot measure the work. Other devices are not measured.

    Args:
        part: of the training loop, such as ``updating``.
    """

    def __init__(self, device: torch.device, part: str):
        self._device, self._part = device, part
        self._pending: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._seconds = 0.0

    def running(self) -> AbstractContextManager[None]:
        """Context of work to be measured."""
        measures = self._device.type == "cuda" and not torch.cuda.is_current_stream_capturing()
        return self._measured() if measures else contextlib.nullcontext()

    @contextlib.contextmanager
    def _measured(self) -> Iterator[None]:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        yield
        end.record()
        self._pending.append((begin, end))

    def metrics(self) -> dict[str, float]:
        """``time/gpu_PART``, seconds so far; waits for the device."""
        if self._device.type != "cuda":
            return {}
        pending, self._pending = self._pending, []
        if pending:
            pending[-1][1].synchronize()
        self._seconds += sum(begin.elapsed_time(end) for begin, end in pending) / 1000
        return {f"time/gpu_{self._part}": self._seconds}
