"""The gradient of a convolution's weights on a CPU, quicker than torch's own where the processor multiplies bfloat16.

Compiled by the compiler that ``execution.compile`` needs, for compiled graphs alone.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dqnspeed.system import machine

log = logging.getLogger(__name__)

SOURCE = Path(__file__).with_name("weight_gradient.cpp")
COMPILERS = "c++", "g++", "clang++"
FILTERS = 16  # of which as many are computed at once

_Shape = ctypes.c_long * 11


@functools.cache
def _library() -> Any:
    """The compiled source, or ``None`` where it is of no use or cannot be made."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None or not machine.multiplies_bf16_pairs():
        return None
    options = "-O3 -std=c++17 -mavx512f -mavx512bw -mavx512vl -mavx512bf16 -mfma -fopenmp -shared -fPIC".split()
    try:
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "weight_gradient.so"
            command = [compiler, *options, str(SOURCE), "-o", str(made)]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
            function = ctypes.CDLL(str(made)).weight_gradient
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or error
        log.info("%s is not used, but torch's own gradients: %s", SOURCE.name, str(said).strip())
        return None
    function.argtypes = [*[ctypes.c_void_p] * 4, ctypes.POINTER(_Shape), ctypes.c_int]
    return function


def available() -> bool:
    """Whether they are computed here on this machine; compiles at the first call, in about a second."""
    return _library() is not None


def _weight_gradient(images: Tensor, gradient: Tensor, kernel: list[int], stride: list[int]) -> tuple[Tensor, Tensor]:
    images, gradient = (values.contiguous(memory_format=torch.channels_last) for values in (images, gradient))
    weights, biases = _gradients_like(images, gradient, kernel, stride)
    (count, channels, *sides), (filters, *out_sides) = images.shape, gradient.shape[1:]
    shape = _Shape(count, *sides, channels, *out_sides, filters, *kernel, *stride)
    pointers = images.data_ptr(), gradient.data_ptr(), weights.data_ptr(), biases.data_ptr()
    if _library()(*pointers, ctypes.byref(shape), torch.get_num_threads()):
        raise MemoryError("no memory for the gradient of a convolution")
    return weights, biases


def _gradients_like(images: Tensor, gradient: Tensor, kernel: list[int], _: list[int]) -> tuple[Tensor, Tensor]:
    filters, channels = gradient.shape[1], images.shape[1]
    weights = images.new_empty((filters, *kernel, channels), dtype=torch.float32).permute(0, 3, 1, 2)
    return weights, images.new_empty(filters, dtype=torch.float32)


# Not torch.library.custom_op(), which adds a tenth of a millisecond to each call.
_ops = torch.library.Library("dqnspeed", "DEF")
_ops.define("weight_gradient(Tensor images, Tensor gradient, int[] kernel, int[] stride) -> (Tensor, Tensor)")
_ops.impl("weight_gradient", _weight_gradient, "CPU")
torch.library.register_fake("dqnspeed::weight_gradient", _gradients_like, lib=_ops)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor, stride: list[int]) -> Tensor:
        images, weight, bias = (values.to(torch.bfloat16) for values in (images, weight, bias))
        ctx.save_for_backward(images, weight)
        ctx.stride = stride
        return torch.conv2d(images, weight, bias, stride)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        images, weight = ctx.saved_tensors
        of_images = None
        if ctx.needs_input_grad[0]:
            of_images = torch.ops.aten.convolution_backward(
                gradient, images, weight, None, ctx.stride, [0, 0], [1, 1], False, [0, 0], 1, [True, False, False]
            )[0]
        return of_images, *torch.ops.dqnspeed.weight_gradient(images, gradient, [*weight.shape[2:]], ctx.stride), None


class Convolution(nn.Conv2d):
    """Without padding.

    Attributes:
        own_gradients: compute them here, where it is compiled for a CPU and computes in bfloat16.
    """

    own_gradients = False

    def forward(self, images: Tensor) -> Tensor:
        if self.own_gradients and torch.compiler.is_compiling() and self._fits(images):
            found: Tensor = _Convolution.apply(images, self.weight, self.bias, [*self.stride])  # type: ignore[no-untyped-call]
            return found
        return super().forward(images)

    def _fits(self, images: Tensor) -> bool:
        return (
            torch.is_grad_enabled()
            and self.weight.requires_grad
            and self.out_channels % FILTERS == 0
            and images.device.type == "cpu"
            and images.is_contiguous(memory_format=torch.channels_last)
            and torch.is_autocast_enabled("cpu")
            and torch.get_autocast_dtype("cpu") == torch.bfloat16
        )


def own_gradients(network: nn.Module) -> None:
    """Have the convolutions of ``network`` compute their gradients here, if this machine can."""
    for layer in network.modules():
        if isinstance(layer, Convolution):
            layer.own_gradients = available()
