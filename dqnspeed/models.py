"""Networks, built from the numbers in ``conf/model``."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dqnspeed.config import ModelConfig
from dqnspeed.options import ConfigError


class Preprocess(nn.Module):
    """Casts observations to float and scales them; optionally subtracts a background first.

    ``background`` is the per-pixel median of frames of random play, ``(C, H, W)``, repeated for the stack. It
    is a buffer, so it is saved, shared and moved with the weights. Until it is measured it is zero.
    """

    background: Tensor

    def __init__(self, observation_shape: Sequence[int], scale: float, subtract: bool):
        super().__init__()
        self.scale = 1.0 / scale
        self.subtract = subtract
        if subtract:
            self.register_buffer("background", torch.zeros(tuple(observation_shape)))

    def forward(self, observations: Tensor) -> Tensor:
        values = observations.float()
        return (values - self.background) * self.scale if self.subtract else values * self.scale

    def measure(self, frames: Tensor) -> None:
        """Set the background to the median of ``frames`` ``(K, C, ...)``, K frames of random play."""
        if self.subtract:
            median = frames.float().median(dim=0).values
            copies = self.background.shape[0] // median.shape[0]
            self.background.copy_(torch.cat([median] * copies))


class QNetwork(nn.Module):
    """Action values ``(B, num_actions) float32`` of observations ``(B, C, H, W)`` or ``(B, D)``.

    Convolutions and layers as in Mnih et al. (2015); ``dueling`` as in Wang et al. (2016), equation 9.

    Args:
        largest: magnitude that observations can have; they are divided by it unless ``model.input_scale`` is set.
    """

    def __init__(self, model: ModelConfig, observation_shape: Sequence[int], num_actions: int, largest: float = 1.0):
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
        layers.append(nn.Flatten())
        self.features = nn.Sequential(*layers)
        units = [math.prod(shape), *model.hidden]
        self.q = _mlp(units, num_actions, model.layer_norm)
        self.value = _mlp(units, 1, model.layer_norm) if model.dueling else None

    def forward(self, observations: Tensor) -> Tensor:
        features = self.features(self.preprocess(observations))
        q: Tensor = self.q(features)
        if self.value is not None:
            q = self.value(features) + q - q.mean(dim=1, keepdim=True)
        return q.float()


def frozen_copy(network: nn.Module) -> nn.Module:
    """A copy for targets, without gradients of its own."""
    return copy.deepcopy(network).requires_grad_(False)


def _mlp(units: Sequence[int], outputs: int, layer_norm: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, hidden in itertools.pairwise(units):
        layers.append(nn.Linear(inputs, hidden))
        if layer_norm:
            layers.append(nn.LayerNorm(hidden))
        layers.append(nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(units[-1], outputs))


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
