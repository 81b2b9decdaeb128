"""Networks of a torso and heads: action values, or a policy and a state value."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec
from dqnspeed.networks.base import Model, Network, full_precision
from dqnspeed.networks.in_numpy import in_numpy
from dqnspeed.networks.preprocess import Preprocess

Linear = Callable[[int, int], nn.Module]  # makes a fully connected layer from its numbers of inputs and outputs


class TorsoNetwork(Network):
    """Base class of networks whose scaled observations go through the torso of ``model``.

    Raises:
        ConfigError: the torso cannot take observations of this shape.
    """

    def __init__(self, run: RunConfig, spec: EnvSpec):
        model, shape = typed(run.model, Model), spec.observation_shape
        model.check_shape(shape)
        super().__init__(Preprocess(shape, model.input_scale or spec.largest, model.background))
        self.features, features = model.torso(shape)
        self.units = [features, *model.hidden]  # of the torso's output, and of each layer after it


class Head(nn.Sequential):
    """Fully connected layers; the last one computes in float32 even if the others are cast to bf16."""

    def forward(self, features: Tensor) -> Tensor:
        *hidden, last = self
        for layer in hidden:
            features = _product(layer, features) if type(layer) is nn.Linear else layer(features)
        with full_precision(features.device):
            values: Tensor = last(features.float())
        return values


def _product(layer: nn.Linear, features: Tensor) -> Tensor:
    """Compute ``layer(features)``; faster on a CPU with the larger factor on the left, read in its memory order."""
    fits = features.dim() == 2 and features.numel() < layer.weight.numel() and layer.bias is not None
    if not fits or not torch.compiler.is_compiling() or features.device.type != "cpu":
        return layer(features)  # type: ignore[no-any-return]
    return torch.addmm(layer.bias[:, None], layer.weight, features.t()).t()


class QNetwork(TorsoNetwork):
    """Action values ``(B, num_actions) float32``.

    Convolutions and layers as in Mnih et al. (2015); ``dueling`` as in Wang et al. (2016), equation 9. The last layers
    always compute in float32: the difference of two actions' values is smaller than the rounding of bf16.

    Args:
        linear: makes the fully connected layers.
        outputs: numbers for each action, from which a subclass computes the value.
        learnt: a torso without weights is followed by the first fully connected layer, so that features are learnt.
    """

    def __init__(
        self, run: RunConfig, spec: EnvSpec, linear: Linear = nn.Linear, outputs: int = 1, learnt: bool = False
    ):
        super().__init__(run, spec)
        norm = run.model.layer_norm
        if learnt and len(self.units) > 1 and next(self.features.parameters(), None) is None:
            self.features = nn.Sequential(self.features, *layers(self.units[:2], norm, linear))
            self.units = self.units[1:]
        self._outputs = outputs
        self.q = head(self.units, spec.num_actions * outputs, norm, linear)
        self.value = head(self.units, outputs, norm, linear) if run.model.dueling else None

    def forward(self, observations: Tensor) -> Tensor:
        return self.streams(self.features(self.preprocess(observations)))[:, :, 0]

    def in_numpy(self) -> Callable[[np.ndarray], tuple[np.ndarray, ...]] | None:
        values = in_numpy(self.preprocess, self.features, *self.q)
        if values is None or type(self) is not QNetwork or self.value is not None:
            return None
        return lambda observations: (values(observations),)

    def streams(self, features: Tensor) -> Tensor:
        """The numbers of each action ``(B, num_actions, outputs)`` for ``features`` ``(B, F)``."""
        q: Tensor = self.q(features).unflatten(1, (-1, self._outputs))
        if self.value is not None:
            q = self.value(features)[:, None] + q - q.mean(dim=1, keepdim=True)
        return q


class PolicyValueNetwork(TorsoNetwork):
    """A policy and a state value that share all layers but the last; ``forward`` returns the policy's logits.

    Weights are initialised orthogonally; the weights of the torso only if the torso allows it. The policy's weights are
    near zero, so that all actions are equally likely at first (Huang et al. 2022, detail 2).
    """

    def __init__(self, run: RunConfig, spec: EnvSpec):
        super().__init__(run, spec)
        self.hidden = nn.Sequential(*layers(self.units, run.model.layer_norm))
        self.policy, self.value = nn.Linear(self.units[-1], spec.num_actions), nn.Linear(self.units[-1], 1)
        torso = typed(run.model, Model).orthogonal
        for name, layer in self.named_modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)) and (torso or not name.startswith("features.")):
                gain = {"policy": 0.01, "value": 1.0}.get(name, math.sqrt(2))
                nn.init.orthogonal_(layer.weight, gain)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, observations: Tensor) -> Tensor:
        return self.policy_and_value(observations)[0]

    def in_numpy(self) -> Callable[[np.ndarray], tuple[np.ndarray, ...]] | None:
        parts = [self.preprocess, self.features, self.hidden], [self.policy], [self.value]
        shared, policy, value = (in_numpy(*part) for part in parts)
        if shared is None or policy is None or value is None or type(self) is not PolicyValueNetwork:
            return None

        def compute(observations: np.ndarray) -> tuple[np.ndarray, ...]:
            features = shared(observations)
            return policy(features), value(features)[:, 0]

        return compute

    def policy_and_value(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Logits ``(B, num_actions)`` and state values ``(B,)``, both float32.

        The last layers always compute in float32: ratios of policies and differences of values are smaller than the
        rounding of bf16.
        """
        shared = self.hidden(self.features(self.preprocess(observations)))
        with full_precision(observations.device):
            return self.policy(shared.float()), self.value(shared.float())[:, 0]


def layers(units: Sequence[int], layer_norm: bool, linear: Linear = nn.Linear) -> list[nn.Module]:
    """Fully connected layers from ``units[0]`` to ``units[-1]`` values."""
    made: list[nn.Module] = []
    for inputs, hidden in itertools.pairwise(units):
        made.append(linear(inputs, hidden))
        if layer_norm:
            made.append(nn.LayerNorm(hidden))
        made.append(nn.ReLU())
    return made


def head(units: Sequence[int], outputs: int, layer_norm: bool, linear: Linear = nn.Linear) -> Head:
    """Fully connected layers, and a last layer with ``outputs`` values."""
    return Head(*layers(units, layer_norm, linear), linear(units[-1], outputs))
