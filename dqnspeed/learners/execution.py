"""How the arithmetic of a learner is run: threads, precision, memory layout, and the way to the device."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor, nn

from dqnspeed import machine
from dqnspeed.config import ExecutionConfig, OptimizerConfig, RunConfig
from dqnspeed.options import ConfigError


def check_execution(run: RunConfig) -> None:
    """Raise :class:`ConfigError` for a device or an execution that this machine cannot give."""
    if not machine.device_available(run.device):
        raise ConfigError(f"device={run.device}: torch {torch.__version__} finds no such device here; use auto or cpu.")
    compilers = ("cc", "gcc", "clang") if machine.pick_device(run.device).type == "cuda" else ("c++", "g++", "clang++")
    if run.execution.compile and not any(map(shutil.which, compilers)):
        raise ConfigError(
            f"execution.compile=true: needs a compiler ({', '.join(compilers)}), and none is on the PATH."
        )


def check_threads(run: RunConfig) -> None:
    """Raise :class:`ConfigError` where more threads are asked for than there are cores to run them."""
    cores = machine.cores()
    for key, asked in (
        ("execution.threads", run.execution.threads),
        ("parallelism.env_threads", run.parallelism.env_threads),
    ):
        if asked > cores:
            raise ConfigError(f"{key}={asked}: must be at most {cores}, the cores this process may use; 0 chooses.")


def set_threads(run: RunConfig) -> None:
    """Give torch the cores that the actors leave."""
    torch.set_num_threads(machine.share_of_cores(run, machine.cores()).learner_threads)


def graphs(execution: ExecutionConfig) -> AbstractContextManager[object]:
    """``torch.no_grad()``, or nothing in the rung that shows what leaving it out costs."""
    return torch.no_grad() if execution.no_grad else contextlib.nullcontext()


def precision(execution: ExecutionConfig, device: torch.device) -> AbstractContextManager[object]:
    """Autocast to bf16, or nothing."""
    if execution.precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16)
    return contextlib.nullcontext()


def place(network: nn.Module, execution: ExecutionConfig, device: torch.device) -> nn.Module:
    """Move a network to its device and memory layout."""
    layout = torch.channels_last if execution.channels_last else torch.contiguous_format
    return network.to(device=device, memory_format=layout)  # type: ignore[call-overload]


def make_optimizer(optimizer: OptimizerConfig, network: nn.Module, device: torch.device) -> torch.optim.Optimizer:
    """The optimizer of ``conf/optimizer``; fused where torch has it for the device."""
    parameters = list(network.parameters())
    lr, eps, decay = optimizer.lr, optimizer.eps, optimizer.weight_decay
    betas = (optimizer.beta1, optimizer.beta2)
    fused = device.type in ("cpu", "cuda")
    if optimizer.name == "adam":
        return torch.optim.Adam(parameters, lr, betas, eps, decay, fused=fused)
    if optimizer.name == "adamw":
        return torch.optim.AdamW(parameters, lr, betas, eps, decay, fused=fused)
    if optimizer.name == "radam":
        return torch.optim.RAdam(parameters, lr, betas, eps, decay)
    return torch.optim.RMSprop(parameters, lr, optimizer.alpha, eps, decay, optimizer.momentum, optimizer.centered)


def lr_at(update: int, optimizer: OptimizerConfig, decay_updates: float) -> float:
    """Learning rate of the ``update``-th update: from ``lr`` to ``lr_final`` in a straight line, then constant."""
    if optimizer.lr_final is None:
        return optimizer.lr
    return annealed(update, optimizer.lr, optimizer.lr_final, decay_updates)


def annealed(update: int, first: float, last: float, decay_updates: float) -> float:
    """A number that goes from ``first`` to ``last`` in a straight line over ``decay_updates``, then stays."""
    progress = min(1.0, update / decay_updates)
    return first + progress * (last - first)


class ToDevice:
    """Hands arrays to the learner's device.

    On a CPU a tensor shares the array's memory. On CUDA the copy goes through page-locked buffers and does not
    wait; two sets of buffers take turns, and one is only refilled once its last copy has finished.
    """

    def __init__(self, device: torch.device, pin_memory: bool):
        self._device = device
        self._pinned = pin_memory and device.type == "cuda"
        self._buffers: list[dict[str, Tensor]] = [{}, {}]
        self._copied: list[torch.cuda.Event | None] = [None, None]
        self._turn = 0

    def __call__(self, arrays: Mapping[str, np.ndarray | Tensor]) -> dict[str, Tensor]:
        """The arrays as tensors there; tensors among them are there already and stay what they are."""
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
    """Adds up the seconds that a CUDA device works on what is launched inside ``with timer.running(): ...``.

    Launches return at once, so the clock of the host cannot tell. On another device nothing is measured.
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
