"""Networks, built from the numbers in ``conf/model``."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dqnspeed.config import ACTOR_CRITIC, ModelConfig, RunConfig
from dqnspeed.envs import EnvSpec
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


class Head(nn.Sequential):
    """Fully connected layers, of which the last computes in float32 also where the others are cast to bf16."""

    def forward(self, features: Tensor) -> Tensor:
        *hidden, last = self
        for layer in hidden:
            features = layer(features)
        with torch.autocast(features.device.type, enabled=False):
            values: Tensor = last(features.float())
        return values


class QNetwork(Convolutional):
    """Action values ``(B, num_actions) float32``.

    Convolutions and layers as in Mnih et al. (2015); ``dueling`` as in Wang et al. (2016), equation 9. The last layers
    always compute in float32: the difference of two actions' values is smaller than the rounding of bf16.
    """

    def __init__(self, model: ModelConfig, observation_shape: Sequence[int], num_actions: int, largest: float = 1.0):
        super().__init__(model, observation_shape, largest)
        self.q = _head(self.units, num_actions, model.layer_norm)
        self.value = _head(self.units, 1, model.layer_norm) if model.dueling else None

    def forward(self, observations: Tensor) -> Tensor:
        features = self.features(self.preprocess(observations))
        q: Tensor = self.q(features)
        if self.value is not None:
            q = self.value(features) + q - q.mean(dim=1, keepdim=True)
        return q


class PolicyValueNetwork(Convolutional):
    """A policy and a state value that share all layers but the last; called, it gives the policy's logits.

    Weights begin orthogonal, those of the policy near zero, so that all actions are equally likely at first (Huang
    et al. 2022, detail 2).
    """

    def __init__(self, model: ModelConfig, observation_shape: Sequence[int], num_actions: int, largest: float = 1.0):
        super().__init__(model, observation_shape, largest)
        self.hidden = _layers(self.units, model.layer_norm)
        self.policy, self.value = nn.Linear(self.units[-1], num_actions), nn.Linear(self.units[-1], 1)
        for name, layer in self.named_modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                gain = {"policy": 0.01, "value": 1.0}.get(name, math.sqrt(2))
                nn.init.orthogonal_(layer.weight, gain)
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, observations: Tensor) -> Tensor:
        return self.policy_and_value(observations)[0]

    def policy_and_value(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Logits ``(B, num_actions)`` and state values ``(B,)``, both float32.

        The last layers always compute in float32: the ratio of two policies, and the difference of two values, would
        drown in the rounding of bf16.
        """
        shared = self.hidden(self.features(self.preprocess(observations)))
        with torch.autocast(observations.device.type, enabled=False):
            return self.policy(shared.float()), self.value(shared.float())[:, 0]


class Table(nn.Module):
    """Action values of numbered states, which come one-hot as ``(B, num_states)``."""

    values: Tensor

    def __init__(self, num_states: int, num_actions: int):
        super().__init__()
        self.register_buffer("values", torch.zeros(num_states, num_actions))

    def forward(self, observations: Tensor) -> Tensor:
        return self.values[observations.argmax(dim=1)]


def make_network(run: RunConfig, spec: EnvSpec) -> nn.Module:
    """The network that ``algo`` trains, with the layers of ``model``."""
    if run.algo.name == "q_learning":
        return Table(spec.observation_shape[0], spec.num_actions)
    kind = PolicyValueNetwork if run.algo.name in ACTOR_CRITIC else QNetwork
    return kind(run.model, spec.observation_shape, spec.num_actions, spec.largest)


def frozen_copy(network: nn.Module) -> nn.Module:
    """A copy for targets, without gradients of its own."""
    return copy.deepcopy(network).requires_grad_(False)


def _layers(units: Sequence[int], layer_norm: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, hidden in itertools.pairwise(units):
        layers.append(nn.Linear(inputs, hidden))
        if layer_norm:
            layers.append(nn.LayerNorm(hidden))
        layers.append(nn.ReLU())
    return nn.Sequential(*layers)


def _head(units: Sequence[int], outputs: int, layer_norm: bool) -> Head:
    return Head(*_layers(units, layer_norm), nn.Linear(units[-1], outputs))


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
