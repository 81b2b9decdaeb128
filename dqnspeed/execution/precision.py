"""Precision of the networks, and code without gradients."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

import torch

from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import ExecutionConfig, RunConfig
from dqnspeed.system import machine


def check_execution(run: RunConfig) -> None:
    """Raise :class:`ConfigError` for a device or an execution that this machine does not have."""
    if not machine.device_available(run.device):
        raise ConfigError(f"device={run.device}: torch {torch.__version__} finds no such device here; use auto or cpu.")
    kind = machine.pick_device(run.device).type
    if run.execution.compile and not machine.compilers(kind):
        names = ", ".join(machine.COMPILERS.get(kind, machine.COMPILERS["cpu"]))
        raise ConfigError(f"execution.compile=true: needs a compiler ({names}), and none is on the PATH.")


def check_learner(run: RunConfig) -> None:
    """Raise :class:`ConfigError` for a way to learn that needs a GPU, where the learner has none."""
    on = machine.pick_device(run.device)
    if run.execution.graph and on.type != "cuda":
        raise ConfigError(
            f"execution.graph=true: needs a CUDA device, and device={run.device} is {on} "
            f"here; use execution.graph=false."
        )
    if run.execution.precision == "tf32" and on.type != "cuda":
        raise ConfigError("execution.precision=tf32: is arithmetic of a CUDA device; use fp32 or bf16.")
    if run.replay.device == "cuda" and on.type != "cuda":
        why = " for want of a CUDA device" if run.device == "auto" else ""
        raise ConfigError(
            f"replay.device=cuda: device={run.device} is {on} here{why}, and experience is "
            f"kept on the learner's device or on the CPU; use auto."
        )


def set_precision(execution: ExecutionConfig) -> None:
    """Let a GPU multiply float32 in TF32, or not; torch's defaults differ for convolutions and for matrices."""
    tf32 = execution.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32


def gradients_off(execution: ExecutionConfig) -> AbstractContextManager[object]:
    """``torch.no_grad()``, or nothing with ``execution.no_grad=false``."""
    return torch.no_grad() if execution.no_grad else contextlib.nullcontext()


def precision(execution: ExecutionConfig, device: torch.device) -> AbstractContextManager[object]:
    """Autocast to bf16, or nothing."""
    if execution.precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16)
    return contextlib.nullcontext()
