"""The residual convolutions of IMPALA (Espeholt et al. 2018, figure 3, right)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, List  # noqa: UP035  OmegaConf reads it at run time

from torch import Tensor, nn

from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig
from dqnspeed.networks.base import Model
from dqnspeed.networks.convolutional import Flatten, LayerNorm


class ImpalaTorso(nn.Module):
    """Floats ``(B, C, H, W)``, scaled already, to features ``(B, units)``.

    Each of ``channels`` stands for a 3x3 convolution, a 3x3 maximum with stride 2 and two residual blocks; a ReLU ends
    the last of them.

    Args:
        layer_norm: norm before every activation.

    Attributes:
        units: features that come out.
    """

    def __init__(
        self, observation_shape: Sequence[int], channels: Sequence[int] = (16, 32, 32), layer_norm: bool = False
    ):
        super().__init__()
        shape = tuple(observation_shape)
        layers: list[nn.Module] = []
        for filters in channels:
            layers += [nn.Conv2d(shape[0], filters, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
            shape = (filters, *(-(-side // 2) for side in shape[1:]))
            layers += [Residual(shape, layer_norm), Residual(shape, layer_norm)]
        self.layers = nn.Sequential(*layers, *_activation(shape, layer_norm), Flatten())
        self.units = math.prod(shape)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images)
        return features


class Residual(nn.Module):
    """``x + conv(relu(conv(relu(x))))`` on ``(B, *shape)``."""

    def __init__(self, shape: tuple[int, ...], layer_norm: bool):
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(2):
            layers += [*_activation(shape, layer_norm), nn.Conv2d(shape[0], shape[0], 3, padding=1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.layers(x)
        return x + change


def _activation(shape: tuple[int, ...], layer_norm: bool) -> list[nn.Module]:
    return [LayerNorm(shape), nn.ReLU()] if layer_norm else [nn.ReLU()]


@register("model", "impala")
@dataclass(frozen=True)
class Impala(Model):
    orthogonal: ClassVar[bool] = True
    takes_images: ClassVar[bool] = True

    channels: List[int] = option("filters of each group of residual blocks")  # noqa: UP006

    def torso(self, observation_shape: Sequence[int]) -> tuple[nn.Module, int]:
        self.check_shape(observation_shape)
        torso = ImpalaTorso(observation_shape, self.channels, self.layer_norm)
        return torso, torso.units

    def check(self, run: RunConfig) -> None:
        if not self.channels or min(self.channels) < 1:
            raise ConfigError(f"model.channels={self.channels}: at least one group, of at least 1 filter each.")
        super().check(run)
