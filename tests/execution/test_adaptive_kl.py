"""The learning rate that follows the divergence of a policy."""

from __future__ import annotations

import pytest
import torch

from dqnspeed.execution.adaptive_kl import CHANGE, MAX_LR_FACTOR, MIN_LR_FACTOR, AdaptiveKL

CPU = torch.device("cpu")
EVERY = 8  # updates of a rollout


def factor_after(divergence: float, updates: int, target: float = 0.01) -> float:
    adaptive_kl = AdaptiveKL(target, target, EVERY, CPU)
    for update in range(updates):
        adaptive_kl.observe(torch.tensor(divergence), update, 100)
    return adaptive_kl.state[0].item()


@pytest.mark.parametrize(
    ("divergence", "factor"),
    [
        (0.0, CHANGE),
        (0.0066, CHANGE),
        (0.0067, 1.0),
        (0.01, 1.0),
        (0.0149, 1.0),
        (0.0151, 1 / CHANGE),
        (9.0, 1 / CHANGE),
    ],
)
def test_the_rate_changes_once_a_rollout_where_the_policy_is_off_its_target(divergence: float, factor: float) -> None:
    assert factor_after(divergence, EVERY - 1) == 1
    assert factor_after(divergence, EVERY) == pytest.approx(factor)
    assert factor_after(divergence, 2 * EVERY) == pytest.approx(factor**2)


def test_what_counts_is_the_mean_of_a_rollout() -> None:
    adaptive_kl = AdaptiveKL(0.01, 0.01, EVERY, CPU)
    for update, divergence in enumerate([0.0, 0.02] * (EVERY // 2)):
        adaptive_kl.observe(torch.tensor(divergence), update, 100)
    assert adaptive_kl.state.tolist() == [1.0, 0.0]


def test_the_rate_stays_within_bounds() -> None:
    assert factor_after(0.0, 1000) == MAX_LR_FACTOR and factor_after(1.0, 1000) == MIN_LR_FACTOR


def test_the_target_falls_to_its_last() -> None:
    adaptive_kl = AdaptiveKL(0.01, 0.001, EVERY, CPU)
    for update in range(4 * EVERY, 5 * EVERY):
        adaptive_kl.observe(torch.tensor(0.01), update, 4 * EVERY)
    assert adaptive_kl.state[0].item() == pytest.approx(1 / CHANGE)
