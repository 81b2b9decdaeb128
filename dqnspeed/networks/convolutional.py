"""``model`` with convolutions, or without any."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, List  # noqa: UP035  OmegaConf reads it at run time

import torch
from torch import Tensor, nn
from torch.nn import functional

from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig
from dqnspeed.networks.base import Model, shown
from dqnspeed.networks.weight_gradient import Convolution


class LayerNorm(nn.LayerNorm):
    """Layer normalization of images ``(B, C, H, W)`` over each whole image, which keeps the memory layout.

    The class of torch copies NHWC to NCHW, and the next convolution copies back.
    """

    def forward(self, images: Tensor) -> Tensor:
        nhwc = images.permute(0, 2, 3, 1)
        if images.is_contiguous() or not nhwc.is_contiguous():
            return super().forward(images)
        weight, bias = (values.permute(1, 2, 0) for values in (self.weight, self.bias))
        return functional.layer_norm(nhwc, weight.shape, weight, bias, self.eps).permute(0, 3, 1, 2)


class Flatten(nn.Flatten):
    """Flattens ``(B, ...)`` to ``(B, F)``.

    A compiler for CPUs copies single numbers when it flattens NHWC images, but vectors when it copies images to images.
    """

    def forward(self, images: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() or images.device.type != "cpu":
            return super().forward(images)
        features = math.prod(images.shape[1:])
        return images.contiguous().as_strided((images.shape[0], features), (features, 1))


@register("model", "convolutional")
@dataclass(frozen=True)
class Convolutional(Model):
    """Convolutions as in Mnih et al. (2015), or none."""

    orthogonal: ClassVar[bool] = True

    conv: List[List[int]] = option("convolutions as [filters, kernel, stride]")  # noqa: UP006

    @property
    def takes_images(self) -> bool:  # type: ignore[override]
        return bool(self.conv)

    def torso(self, observation_shape: Sequence[int]) -> tuple[nn.Module, int]:
        self.check_shape(observation_shape)
        layers: list[nn.Module] = []
        shape = tuple(observation_shape)
        for filters, kernel, stride in self.conv:
            layers.append(Convolution(shape[0], filters, kernel, stride))
            shape = (filters, *((side - kernel) // stride + 1 for side in shape[1:]))
            if self.layer_norm:
                layers.append(LayerNorm(list(shape)))
            layers.append(nn.ReLU())
        # The last ReLU comes after the flattening: with NHWC its gradient and its values have one memory order.
        layers.insert(len(layers) - bool(self.conv), Flatten())
        return nn.Sequential(*layers), math.prod(shape)

    def check(self, run: RunConfig) -> None:
        for layer in self.conv:
            if len(layer) != 3 or min(layer) < 1:
                raise ConfigError(f"model.conv={self.conv}: each layer is [filters, kernel, stride], all at least 1.")
        super().check(run)

    def check_shape(self, observation_shape: Sequence[int]) -> None:
        super().check_shape(observation_shape)
        sides = list(observation_shape[1:])
        for _, kernel, stride in self.conv:
            sides = [(side - kernel) // stride + 1 for side in sides]
            if min(sides) < 1:
                raise ConfigError(
                    f"model={self.name}: its convolutions do not fit observations of {shown(observation_shape)}; use "
                    f"model=board (for small images), wrappers.resize=84 or a model of your own."
                )
