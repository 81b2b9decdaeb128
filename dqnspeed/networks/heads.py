"""From features to what an algorithm learns: action values, or a policy and a state value."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dqnspeed.config.schema import ACTOR_CRITIC, ModelConfig, RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.networks.table import Table
from dqnspeed.networks.torso import Convolutional


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
