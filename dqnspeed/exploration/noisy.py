"""Noisy networks: exploration by noise on the weights, whose size is learnt (Fortunato et al. 2018)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig
from dqnspeed.exploration.linear import LinearEpsilon


class NoisyLinear(nn.Linear):
    """Linear layer with factorised Gaussian noise (section 3, equations 9 to 11); ``weight`` and ``bias`` are means.

    In training mode every call draws new noise, one sample for all rows of the input, from torch's global generator of
    the device. In eval mode the layer computes with the means. Noise is not stored, so processes and copies that share
    the weights explore independently.

    Args:
        sigma0: initial size of the noise, before division by ``sqrt(in_features)``.
    """

    def __init__(self, in_features: int, out_features: int, sigma0: float = 0.5):
        super().__init__(in_features, out_features)
        bound = 1 / math.sqrt(in_features)  # section 3.2
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)
        self.weight_sigma = nn.Parameter(torch.full_like(self.weight, sigma0 * bound))
        self.bias_sigma = nn.Parameter(torch.full_like(self.bias, sigma0 * bound))

    def forward(self, features: Tensor) -> Tensor:
        """``(B, in_features)`` to ``(B, out_features)``."""
        mean = F.linear(features, self.weight, self.bias)
        if not self.training:
            return mean
        # The noise of weight (i, j) is the product out[i] * in[j], so no matrix of noise is needed.
        noise_in, noise_out = (_scaled_noise(size, mean) for size in (self.in_features, self.out_features))
        return mean + F.linear(features * noise_in, self.weight_sigma, self.bias_sigma) * noise_out


def _scaled_noise(size: int, like: Tensor) -> Tensor:
    noise = torch.randn(size, device=like.device, dtype=like.dtype)
    return noise.sign() * noise.abs().sqrt()


@register("exploration", "noisy")
@dataclass(frozen=True)
class Noisy(LinearEpsilon):
    """Noise on the weights of the fully connected layers, and an epsilon that is usually 0.

    Epsilon never rises above ``start``, since recipes for a falling epsilon may set a larger ``final``.
    """

    sigma0: float = option("size of the noise at first, over the root of a layer's inputs", gt=0)

    def epsilon_at(self, step: int) -> float:
        return min(self.start, super().epsilon_at(step))

    def settled(self) -> Noisy:
        return replace(self, start=min(self.start, self.final))

    def linear(self, inputs: int, outputs: int) -> nn.Module:
        return NoisyLinear(inputs, outputs, self.sigma0)

    def check(self, run: RunConfig) -> None:
        super().check(run)
        if "exploration" in run.algo.uses and "model" not in run.algo.uses:
            raise ConfigError(
                f"exploration={self.name}: puts noise on the layers of a network, and algo={run.algo.name} has none; "
                f"use exploration=linear."
            )

    def random_steps(self) -> float | None:
        return super().random_steps() if self.start else None

    def sentence(self) -> str:
        return f"noisy layers of {self.sigma0:g}" + (f", {super().sentence()}" if self.start else "")
