"""The learning rate that is steered by the divergence of a policy."""

from __future__ import annotations

import pytest
import torch

from dqnspeed.execution.adaptive_kl import LEAST, MOST, STEP, Steering

CPU = torch.device("cpu")
EVERY = 8  # updates of a rollout


def steered(divergence: float, updates: int, target: float = 0.01) -> float:
    steering = Steering(target, target, 100, EVERY, CPU)
    for update in range(updates):
        steering.see(torch.tensor(divergence), update)
    return steering.state[0].item()


@pytest.mark.parametrize(
    ("divergence", "factor"),
    [(0.0, STEP), (0.0066, STEP), (0.0067, 1.0), (0.01, 1.0), (0.0149, 1.0), (0.0151, 1 / STEP), (9.0, 1 / STEP)],
)
def test_the_rate_is_changed_once_in_a_while_and_only_where_the_policy_is_off_its_target(
    divergence: float, factor: float
) -> None:
    assert steered(divergence, EVERY - 1) == 1
    assert steered(divergence, EVERY) == pytest.approx(factor)
    assert steered(divergence, 2 * EVERY) == pytest.approx(factor**2)


def test_what_counts_is_the_mean_of_a_rollout() -> None:
    steering = Steering(0.01, 0.01, 100, EVERY, CPU)
    for update, divergence in enumerate([0.0, 0.02] * (EVERY // 2)):
        steering.see(torch.tensor(divergence), update)
    assert steering.state.tolist() == [1.0, 0.0]


def test_the_rate_stays_within_bounds() -> None:
    assert steered(0.0, 1000) == MOST and steered(1.0, 1000) == LEAST


def test_the_target_falls_to_its_last() -> None:
    steering = Steering(0.01, 0.001, 4 * EVERY, EVERY, CPU)
    for update in range(4 * EVERY, 5 * EVERY):
        steering.see(torch.tensor(0.01), update)
    assert steering.state[0].item() == pytest.approx(1 / STEP)


def test_where_it_is_captured_it_is_the_same() -> None:
    torch.manual_seed(0)
    divergences = torch.rand(100) * 0.03
    plain, captured = (Steering(0.02, 0.005, 50, EVERY, CPU) for _ in range(2))
    for update, divergence in enumerate(divergences):
        plain.see(divergence, update)
        captured.see(divergence, torch.tensor(update))
    assert torch.equal(plain.state, captured.state) and plain.state[0] != 1
