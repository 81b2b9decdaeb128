"""The distribution of returns by its quantiles, at fractions drawn anew (Dabney et al. 2018)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def quantile_huber_loss(predicted: Tensor, targets: Tensor, taus: Tensor, kappa: float = 1.0) -> Tensor:
    """Huber quantile regression (equation 3): summed over the fractions, mean over the targets.

    Args:
        predicted: ``(B, N)`` quantiles at the fractions ``taus`` ``(B, N)``.
        targets: ``(B, N')`` samples of the return.
        kappa: TD error at which the square gives way to the line, more than 0.

    Returns:
        ``(B,)``, a loss for each transition.
    """
    errors = targets[:, None, :] - predicted[:, :, None]  # (B, N, N')
    size = errors.abs()
    huber = torch.where(size <= kappa, 0.5 * errors.square(), kappa * (size - 0.5 * kappa))
    weights = (taus[:, :, None] - (errors < 0).to(taus.dtype)).abs()
    return (weights * huber / kappa).mean(dim=2).sum(dim=1)


class CosineEmbedding(nn.Module):
    """Features of fractions (equation 4): ReLU of a linear layer on ``cos(pi i tau)``, i from 0.

    Args:
        units: features for each fraction, as many as the network's own that they are multiplied with.
        cosines: of each fraction, 64 in the paper.
    """

    frequencies: Tensor

    def __init__(self, units: int, cosines: int = 64):
        super().__init__()
        self.linear = nn.Linear(cosines, units)
        self.register_buffer("frequencies", math.pi * torch.arange(cosines, dtype=torch.float32), persistent=False)

    def forward(self, taus: Tensor) -> Tensor:
        """``(B, N)`` fractions to ``(B, N, units)``."""
        return F.relu(self.linear(torch.cos(taus[:, :, None] * self.frequencies)))
