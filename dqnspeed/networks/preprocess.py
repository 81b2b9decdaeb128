"""Preprocessing of observations: scaling, and subtraction of a static background."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import torch
from torch import Tensor, nn

AVX512 = torch.backends.cpu.get_cpu_capability() == "AVX512"


def _interleaved(images: Tensor) -> Tensor:
    """Images ``(B, 2 or 4, H, W) uint8`` as ``(B, H * W * C)``.

    Joining the bytes of a pixel to one number is faster on a CPU than torch's copy of single bytes: eight times for two
    channels, twice for four.
    """
    return _pixels(images).view(torch.uint8).flatten(1)


def _pixels(images: Tensor) -> Tensor:
    """The bytes of each pixel of ``(B, 2 or 4, H, W) uint8`` as one integer ``(B, H, W)``, the first byte lowest."""
    first, second, *others = (images[:, channel] for channel in range(images.shape[1]))
    if others and AVX512 and torch.compiler.is_compiling():  # a compiler uses vectors of 32 bits, not of 16
        pixels = first.to(torch.int32)
        for place, channel in enumerate((second, *others), start=1):
            pixels = pixels + (channel.to(torch.int32) << 8 * place)
        return pixels
    pixels = torch.add(first, second.to(torch.int16), alpha=256)  # int16 wraps around
    if others:
        third, fourth = others
        upper = torch.add(third, fourth.to(torch.int16), alpha=256)
        pixels = torch.add(pixels.to(torch.int32) & 0xFFFF, upper.to(torch.int32), alpha=65536)
    return pixels


class Preprocess(nn.Module):
    """Casts observations to float and scales them; optionally subtracts a background first.

    ``background`` is the per-pixel median of frames of random play, ``(C, H, W)``, repeated for the stack;
    zero until measured. It is a buffer, so it is saved, shared and moved with the weights.

    Attributes:
        channels_last: lay images out as NHWC.
    """

    background: Tensor

    def __init__(self, observation_shape: Sequence[int], scale: float, subtract: bool):
        super().__init__()
        self.scale = 1.0 / scale
        self.subtract = subtract
        self.channels_last = False
        if subtract:
            self.register_buffer("background", torch.zeros(tuple(observation_shape)))

    def forward(self, observations: Tensor) -> Tensor:
        dtype = self._dtype(observations)
        if observations.dtype == dtype and self.scale == 1.0 and not self.subtract and not self.channels_last:
            return observations
        if self._can_interleave(observations):
            channels, height, width = observations.shape[1:]
            background = self.background.permute(1, 2, 0).flatten() if self.subtract else None
            values = self._scaled(_interleaved(observations).to(dtype), background)
            return values.view(-1, height, width, channels).permute(0, 3, 1, 2)
        if self.channels_last and observations.dim() == 4:
            observations = observations.contiguous(memory_format=torch.channels_last)
        background = self.background if self.subtract else None
        return self._scaled(observations.to(dtype, copy=True), background)  # observations stay as they are

    def _scaled(self, values: Tensor, background: Tensor | None) -> Tensor:
        if background is not None:
            values -= background.to(values.dtype)
        values *= self.scale
        return values

    def _can_interleave(self, observations: Tensor) -> bool:
        return (
            self.channels_last
            and observations.dim() == 4
            and observations.shape[1] in (2, 4)
            and observations.dtype == torch.uint8
            and observations.device.type == "cpu"
            and sys.byteorder == "little"
        )

    def _dtype(self, observations: Tensor) -> torch.dtype:
        """Dtype of autocast if all numbers are exact in it, which halves the memory; else float32.

        Bytes are exact. So are differences of bytes and of the background, which is a median of bytes. Division by a
        power of two keeps them exact.
        """
        kind = observations.device.type
        exact = observations.dtype == torch.uint8 and math.frexp(self.scale)[0] == 0.5
        if exact and kind != "meta" and torch.is_autocast_enabled(kind):
            return torch.get_autocast_dtype(kind)
        return torch.float32

    def measure(self, frames: Tensor) -> None:
        """Set the background to the median of ``frames`` ``(K, C, ...)``, K frames of random play."""
        if self.subtract:
            median = frames.float().median(dim=0).values
            copies = self.background.shape[0] // median.shape[0]
            self.background.copy_(torch.cat([median] * copies))
