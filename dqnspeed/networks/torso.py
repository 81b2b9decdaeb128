"""From observations to features: the convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import nn

from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import ModelConfig
from dqnspeed.networks.background import Preprocess


class Convolutional(nn.Module):
    """What the networks share: observations ``(B, C, H, W)`` or ``(B, D)``, scaled, through the convolutions.

    Args:
        largest: magnitude that observations can have; they are divided by it unless ``model.input_scale`` is set.

    Raises:
        ConfigError: the convolutions cannot take observations of this shape.
    """

    def __init__(self, model: ModelConfig, observation_shape: Sequence[int], largest: float):
        super().__init__()
        check_network(model, observation_shape)
        self.preprocess = Preprocess(observation_shape, model.input_scale or largest, model.background)
        layers: list[nn.Module] = []
        shape = tuple(observation_shape)
        for filters, kernel, stride in model.conv:
            layers.append(nn.Conv2d(shape[0], filters, kernel, stride))
            shape = (filters, *((side - kernel) // stride + 1 for side in shape[1:]))
            if model.layer_norm:
                layers.append(nn.LayerNorm(shape))
            layers.append(nn.ReLU())
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.units = [math.prod(shape), *model.hidden]  # values out of the convolutions, and of each layer after them


def check_network(model: ModelConfig, observation_shape: Sequence[int]) -> None:
    """Raise :class:`ConfigError` where the network cannot take observations of this shape."""
    if not model.conv:
        return
    shown = "x".join(map(str, observation_shape))
    if len(observation_shape) != 3:
        raise ConfigError(f"model={model.name}: takes images, and observations here are {shown}; use model=mlp.")
    sides = list(observation_shape[1:])
    for _, kernel, stride in model.conv:
        sides = [(side - kernel) // stride + 1 for side in sides]
        if min(sides) < 1:
            raise ConfigError(
                f"model={model.name}: its convolutions do not fit observations of {shown}; use model=board (for small "
                f"images), wrappers.resize=84 or a model of your own."
            )
