"""Learnt Fourier features, for vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.registry import register
from dqnspeed.networks.base import Model, shown


@register("model", "fourier")
@dataclass(frozen=True)
class Fourier(Model):
    """Li and Pathak (2021): a network of sines learns fine differences sooner than one of ReLUs."""

    waves: int = option("sines, and as many cosines", ge=1)
    bandwidth: float = option("standard deviation of their frequencies at first", gt=0)

    def torso(self, observation_shape: Sequence[int]) -> tuple[nn.Module, int]:
        return Waves(observation_shape[0], self.waves, self.bandwidth), 2 * self.waves

    def check_shape(self, observation_shape: Sequence[int]) -> None:
        if len(observation_shape) != 1:
            raise ConfigError(
                f"model={self.name}: takes vectors, and observations here are {shown(observation_shape)}; use "
                f"model=nature."
            )


class Waves(nn.Module):
    """Floats ``(B, inputs)`` to features ``(B, 2 * waves)``."""

    def __init__(self, inputs: int, waves: int, bandwidth: float):
        super().__init__()
        self.project = nn.Linear(inputs, waves)
        nn.init.normal_(self.project.weight, std=bandwidth)
        nn.init.uniform_(self.project.bias, -math.pi, math.pi)

    def forward(self, x: Tensor) -> Tensor:
        angles = self.project(x)
        return torch.cat([angles.sin(), angles.cos()], dim=1)
