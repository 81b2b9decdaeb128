"""Transfer of arrays to the device, and the device's time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor


class ToDevice:
    """Moves arrays to the learner's device.

    On a CPU a tensor shares the array's memory. On CUDA the copy goes through page-locked buffers and is
    asynchronous; of two sets of buffers, one is refilled only after its last copy has finished.
    """

    def __init__(self, device: torch.device, pin_memory: bool):
        self._device = device
        self._pinned = pin_memory and device.type == "cuda"
        self._buffers: list[dict[str, Tensor]] = [{}, {}]
        self._copied: list[torch.cuda.Event | None] = [None, None]
        self._turn = 0

    def __call__(self, arrays: Mapping[str, np.ndarray | Tensor]) -> dict[str, Tensor]:
        """The arrays as tensors on the device; tensors are returned as they are."""
        there = {name: array for name, array in arrays.items() if isinstance(array, Tensor)}
        here = {name: torch.from_numpy(array) for name, array in arrays.items() if isinstance(array, np.ndarray)}
        return there | self._moved(here)

    def _moved(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        if self._device.type == "cpu":
            return tensors
        if not self._pinned:
            return {name: tensor.to(self._device) for name, tensor in tensors.items()}
        self._turn ^= 1
        done = self._copied[self._turn]
        if done is not None:
            done.synchronize()
        buffers, moved = self._buffers[self._turn], {}
        for name, tensor in tensors.items():
            if name not in buffers or buffers[name].shape != tensor.shape:
                buffers[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            moved[name] = buffers[name].copy_(tensor).to(self._device, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self._copied[self._turn] = event
        return moved


class DeviceTimer:
    """Sums the seconds that a CUDA device spends on what is launched inside ``with timer.running(): ...``.

    Launches return at once, so the host's clock cannot measure it. Other devices are not measured.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._pending: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._seconds = 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        if self._device.type != "cuda":
            yield
            return
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        yield
        end.record()
        self._pending.append((begin, end))

    def metrics(self) -> dict[str, float]:
        """``time/gpu_updating``, seconds so far; waits for the device."""
        if self._device.type != "cuda":
            return {}
        pending, self._pending = self._pending, []
        if pending:
            pending[-1][1].synchronize()
        self._seconds += sum(begin.elapsed_time(end) for begin, end in pending) / 1000
        return {"time/gpu_updating": self._seconds}
