"""The projection against algorithm 1 of Bellemare et al. (2017), written out."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dqnspeed.algorithms.c51 import project


def categorical_algorithm(p: list[float], reward: float, discount: float, z: list[float]) -> list[float]:
    """Algorithm 1 for one transition, and what it leaves out: a return that is exactly an atom."""
    low, high, atoms = z[0], z[-1], len(z)
    spacing = (high - low) / (atoms - 1)
    m = [0.0] * atoms
    for j in range(atoms):
        b = (min(high, max(low, reward + discount * z[j])) - low) / spacing
        b = min(b, atoms - 1.0)  # rounding may lead past the last atom
        lower, upper = math.floor(b), math.ceil(b)
        if lower == upper:
            m[lower] += p[j]
        else:
            m[lower] += p[j] * (upper - b)
            m[upper] += p[j] * (b - lower)
    return m


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 60), st.floats(-20, 5), st.floats(0.5, 30), st.integers(0, 2**31))
def test_it_is_algorithm_1(atoms: int, low: float, width: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    p = torch.rand(7, atoms, generator=generator, dtype=torch.float64).softmax(dim=1)
    rewards = 10 * torch.randn(7, generator=generator, dtype=torch.float64)
    discounts = torch.tensor([0.0, 0.0, 0.5, 0.9, 0.99, 0.99**3, 1.0], dtype=torch.float64)
    support = torch.linspace(low, low + width, atoms, dtype=torch.float64)
    projected = project(p, rewards, discounts, support)
    for i in range(7):
        expected = categorical_algorithm(p[i].tolist(), float(rewards[i]), float(discounts[i]), support.tolist())
        torch.testing.assert_close(projected[i], torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-9)


def test_by_hand() -> None:
    support = torch.tensor([-1.0, 0.0, 1.0])
    p = torch.tensor([[0.2, 0.3, 0.5]] * 5)
    rewards = torch.tensor([0.0, 0.25, 5.0, 1.0, 0.5])
    discounts = torch.tensor([1.0, 0.0, 0.9, 1.0, 0.5])
    expected = torch.tensor(
        [
            [0.2, 0.3, 0.5],  # nothing changes
            [0.0, 0.75, 0.25],  # terminated: a quarter of the way from 0 to 1
            [0.0, 0.0, 1.0],  # beyond the last atom
            [0.0, 0.2, 0.8],  # moved by one atom
            [0.0, 0.2 + 0.3 / 2, 0.3 / 2 + 0.5],  # to 0, 0.5 and 1
        ]
    )
    torch.testing.assert_close(project(p, rewards, discounts, support), expected)


@pytest.mark.parametrize("atoms", [2, 51, 101])
def test_in_float32_probabilities_stay_so(atoms: int) -> None:
    p = torch.randn(64, atoms).softmax(dim=1)
    projected = project(p, 3 * torch.randn(64), torch.full((64,), 0.99), torch.linspace(-10, 10, atoms))
    assert projected.dtype == torch.float32 and (projected >= 0).all()
    torch.testing.assert_close(projected.sum(dim=1), torch.ones(64), rtol=0, atol=1e-5)
