"""The gradient of a convolution's weights, faster than torch's own on a CPU that multiplies bfloat16.

The C++ source is compiled by the compiler that ``execution.compile`` needs, and is used in compiled graphs only.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dqnspeed.system import machine

log = logging.getLogger(__name__)

SOURCE = Path(__file__).with_suffix(".cpp")
COMPILERS = "g++", "c++", "clang++"  # after CXX, in the order of the compiler of graphs, then others
OPTIONS = "-O3 -std=c++17 -mavx512f -mavx512bw -mavx512vl -mavx512bf16 -mfma -fopenmp -shared -fPIC".split()
FILTERS = 16  # computed at a time

_Shape = ctypes.c_long * 11


@functools.cache
def _function() -> Any:
    """The function of the compiled source; ``None`` if this processor gains nothing, or no compiler works."""
    if not machine.multiplies_bf16_pairs():
        return None
    compilers = [*filter(None, map(shutil.which, (os.environ.get("CXX", ""), *COMPILERS)))]
    said = "there is no compiler"
    for compiler in dict.fromkeys(compilers):
        try:
            with tempfile.TemporaryDirectory() as folder:
                made = Path(folder) / "weight_gradient.so"
                command = [compiler, *OPTIONS, str(SOURCE), "-o", str(made)]
                subprocess.run(command, check=True, capture_output=True, text=True, errors="replace", timeout=120)
                function = ctypes.CDLL(str(made)).weight_gradient
        except (OSError, subprocess.SubprocessError) as error:
            said = f"{compiler}: {getattr(error, 'stderr', None) or error}".strip()
        else:
            function.argtypes = [*[ctypes.c_void_p] * 4, ctypes.POINTER(_Shape), ctypes.c_int]
            return function
    log.warning("%s cannot be compiled, and torch's own gradients are used: %s", SOURCE.name, said)
    return None


def available() -> bool:
    """Whether this machine can use the compiled source; the first call compiles it, in about a second."""
    return _function() is not None


def _weight_gradient(images: Tensor, gradient: Tensor, kernel: list[int], stride: list[int]) -> tuple[Tensor, Tensor]:
    assert images.dtype == gradient.dtype == torch.bfloat16 and gradient.shape[1] % FILTERS == 0
    images, gradient = (values.contiguous(memory_format=torch.channels_last) for values in (images, gradient))
    weights, biases = _gradients_like(images, gradient, kernel, stride)
    (count, channels, *sides), (filters, *out_sides) = images.shape, gradient.shape[1:]
    shape = _Shape(count, *sides, channels, *out_sides, filters, *kernel, *stride)
    pointers = images.data_ptr(), gradient.data_ptr(), weights.data_ptr(), biases.data_ptr()
    if _function()(*pointers, ctypes.byref(shape), torch.get_num_threads()):
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
        weight, bias = weight.to(torch.bfloat16), bias.to(torch.bfloat16)
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
    """A convolution without padding of images ``(B, C, H, W)``.

    Attributes:
        quick: compute the gradients of weights and biases by the compiled source, in float32. The convolution must be
            compiled, compute in bfloat16 and get NHWC images. ``MemoryError`` may be raised.
    """

    quick = False

    def __init__(self, channels: int, filters: int, kernel: int, stride: int = 1):
        super().__init__(channels, filters, kernel, stride)

    def forward(self, images: Tensor) -> Tensor:
        if self.quick and torch.compiler.is_compiling() and self._fits(images):
            arguments = images.to(torch.bfloat16), self.weight, self.bias, [*self.stride]
            found: Tensor = _Convolution.apply(*arguments)  # type: ignore[no-untyped-call]
            return found
        return super().forward(images)

    def _fits(self, images: Tensor) -> bool:
        return (
            torch.is_grad_enabled()
            and self.weight.requires_grad
            and images.device.type == "cpu"
            and images.is_contiguous(memory_format=torch.channels_last)
            and torch.is_autocast_enabled("cpu")
            and torch.get_autocast_dtype("cpu") == torch.bfloat16
        )


def make_quick(network: nn.Module) -> None:
    """Let the convolutions of ``network`` compute gradients by the compiled source, if this machine can use it."""
    for layer in network.modules():
        if isinstance(layer, Convolution) and layer.out_channels % FILTERS == 0:
            layer.quick = available()
