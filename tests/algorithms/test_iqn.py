"""Quantile regression and the embedding of fractions against Dabney et al. (2018), written out."""

from __future__ import annotations

import math

import pytest
import torch
from one_update import SEED, SIZE, check_update, learner_of, observation
from torch import nn
from torch.nn import functional as F

from dqnspeed.algorithms.iqn import CosineEmbedding, quantile_huber_loss
from dqnspeed.buffers import Batch


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


def quantile(network: nn.Module, seen: torch.Tensor, tau: float) -> torch.Tensor:
    """``(num_actions,)`` of one observation by the layers of the network (equation 4)."""
    features = network.features(network.preprocess(seen))[0]  # type: ignore[operator]
    layer = network.embedding.linear  # type: ignore[union-attr]
    cosines = torch.tensor([math.cos(math.pi * i * tau) for i in range(64)])
    both = (features * F.relu(layer.weight @ cosines + layer.bias))[None]  # type: ignore[operator]
    q = network.q(both)[0]  # type: ignore[operator]
    return q if network.value is None else network.value(both)[0] + q - q.mean()  # type: ignore[operator]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("double", "dueling"), [(False, False), (True, False), (True, True)])
def test_an_update_is_the_gradient_step_of_equation_3(double: bool, dueling: bool, weighted: bool) -> None:
    counts = ["algo.samples=5", "algo.target_samples=3", "algo.acting_samples=4", "algo.kappa=0.5"]
    learner = learner_of("algo=iqn", f"algo.double={double}", f"model.dueling={dueling}", *counts)
    torch.manual_seed(SEED)
    taus, next_taus = torch.rand(SIZE, 5), torch.rand(SIZE, 3)

    def transition(i: int, batch: Batch, online: nn.Module, target: nn.Module) -> tuple[torch.Tensor, float]:
        after = observation(batch, i, after=True)
        with torch.no_grad():
            acting = [quantile(online if double else target, after, tau) for tau in (0.125, 0.375, 0.625, 0.875)]
            best = int(torch.stack(acting).mean(dim=0).argmax())
            goals = [
                float(batch.rewards[i]) + float(batch.discounts[i]) * float(quantile(target, after, tau)[best])
                for tau in next_taus[i].tolist()
            ]
        told = [quantile(online, observation(batch, i), tau)[batch.actions[i]] for tau in taus[i].tolist()]
        total = torch.zeros(())
        for value, tau in zip(told, taus[i].tolist(), strict=True):
            for goal in goals:
                error = goal - value
                size = abs(error.item())
                huber = error**2 / 2 if size <= 0.5 else 0.5 * (error.abs() - 0.25)
                total = total + abs(tau - (error.item() < 0)) * huber / 0.5 / 3
        return total, abs(sum(goals) / 3 - torch.stack(told).mean().item())

    check_update(learner, weighted, transition)


def test_called_it_gives_the_mean_of_evenly_spaced_quantiles_and_draws_nothing() -> None:
    network, seen = learner_of("algo=iqn", "algo.acting_samples=2").network, torch.randn(1, 5)
    before = torch.get_rng_state()
    expected = (quantile(network, seen, 0.25) + quantile(network, seen, 0.75)) / 2
    torch.testing.assert_close(network(seen)[0], expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_is_near_zero_differs_by_its_fraction() -> None:
    network = learner_of("algo=iqn").network
    quantiles = network.quantiles(torch.zeros(1, 5), torch.tensor([[0.1, 0.9]]))  # type: ignore[operator]
    assert (quantiles[0, 0] - quantiles[0, 1]).abs().min() > 0
