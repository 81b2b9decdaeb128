"""Quantile regression and the embedding of fractions against Dabney et al. (2018), written out."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from dqnspeed.algorithms.iqn import CosineEmbedding, quantile_huber_loss


def loss_of_one(predicted: list[float], targets: list[float], taus: list[float], kappa: float) -> float:
    """Equation 3 for one transition."""
    total = 0.0
    for quantile, tau in zip(predicted, taus, strict=True):
        for target in targets:
            delta = target - quantile
            huber = delta**2 / 2 if abs(delta) <= kappa else kappa * (abs(delta) - kappa / 2)
            total += abs(tau - (delta < 0)) * huber / kappa / len(targets)
    return total


@pytest.mark.parametrize("kappa", [0.3, 1.0, 2.0])
@pytest.mark.parametrize(("quantiles", "samples"), [(1, 1), (5, 3), (3, 8)])
def test_the_loss_is_equation_3(kappa: float, quantiles: int, samples: int) -> None:
    predicted, targets, taus = 2 * torch.randn(6, quantiles), 2 * torch.randn(6, samples), torch.rand(6, quantiles)
    computed = quantile_huber_loss(predicted, targets, taus, kappa)
    expected = [loss_of_one(*row, kappa) for row in zip(*(x.tolist() for x in (predicted, targets, taus)), strict=True)]
    torch.testing.assert_close(computed, torch.tensor(expected))


def test_by_hand() -> None:
    predicted, targets, taus = torch.tensor([[1.0]]), torch.tensor([[3.0, 0.5]]), torch.tensor([[0.25]])
    # 0.25 * (2 - 0.5) above, 0.75 * 0.5^2 / 2 below, and their mean
    assert quantile_huber_loss(predicted, targets, taus).item() == pytest.approx((0.375 + 0.09375) / 2)


def test_its_gradient_leads_to_the_quantiles() -> None:
    generator = torch.Generator().manual_seed(0)
    taus = torch.tensor([[0.1, 0.5, 0.9]])
    quantiles = torch.zeros(1, 3, requires_grad=True)
    samples = torch.rand(1, 2000, generator=generator)
    optimizer = torch.optim.Adam([quantiles], lr=0.02)
    for _ in range(300):
        optimizer.zero_grad()
        quantile_huber_loss(quantiles, samples, taus, kappa=0.01).sum().backward()
        optimizer.step()
    torch.testing.assert_close(quantiles.detach(), taus, rtol=0, atol=0.05)


def test_the_embedding_is_equation_4() -> None:
    embedding, taus = CosineEmbedding(units=3, cosines=8), torch.rand(2, 5)
    features = embedding(taus)
    assert features.shape == (2, 5, 3)
    weight, bias = embedding.linear.weight, embedding.linear.bias
    for b in range(2):
        for k in range(5):
            cosines = torch.tensor([math.cos(math.pi * i * float(taus[b, k])) for i in range(8)])
            torch.testing.assert_close(features[b, k], F.relu(weight @ cosines + bias))
    assert set(embedding.state_dict()) == {"linear.weight", "linear.bias"}
    assert CosineEmbedding(units=3).linear.in_features == 64
