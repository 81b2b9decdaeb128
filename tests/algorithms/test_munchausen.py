"""Soft values and Munchausen's reward against equations 1 and 2 of Vieillard et al. (2020), written out."""

from __future__ import annotations

import math

import pytest
import torch
from one_update import check_update, learner_of, observation
from torch import nn

from dqnspeed.algorithms.munchausen import munchausen_reward, soft_value
from dqnspeed.buffers import Batch


def policy(q: list[float], temperature: float) -> list[float]:
    weights = [math.exp((value - max(q)) / temperature) for value in q]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
def test_both_are_those_of_equation_2(temperature: float) -> None:
    q, rewards, actions = torch.randn(6, 4), torch.randn(6), torch.tensor([0, 1, 2, 3, 0, 1])
    values = soft_value(q, temperature)
    computed = munchausen_reward(rewards, q, actions, alpha=0.9, temperature=temperature, clip=-1.0)
    for i in range(6):
        pi = policy(q[i].tolist(), temperature)
        value = sum(p * (float(q[i, a]) - temperature * math.log(p)) for a, p in enumerate(pi))
        assert float(values[i]) == pytest.approx(value, abs=1e-5)
        log_policy = temperature * math.log(pi[int(actions[i])])
        assert float(computed[i]) == pytest.approx(float(rewards[i]) + 0.9 * min(0.0, max(-1.0, log_policy)), abs=1e-5)


def test_by_hand() -> None:
    q = torch.zeros(1, 4)  # each action has 1/4
    assert soft_value(q, 0.5).item() == pytest.approx(0.5 * math.log(4))
    reward = munchausen_reward(torch.tensor([1.0]), q, torch.tensor([2]), alpha=0.9, temperature=0.5, clip=-1.0)
    assert reward.item() == pytest.approx(1.0 - 0.9 * 0.5 * math.log(4))


def test_large_values_at_the_paper_s_temperature_stay_exact_and_finite() -> None:
    q = torch.tensor([[300.0, 299.99, -300.0], [-300.0, -300.0, -900.0]], requires_grad=True)
    values = soft_value(q, 0.03)
    exact = [300 + 0.03 * math.log(1 + math.exp(-0.01 / 0.03)), -300 + 0.03 * math.log(2)]
    torch.testing.assert_close(values, torch.tensor(exact), rtol=0, atol=1e-3)
    rewards = munchausen_reward(torch.zeros(2), q, torch.tensor([2, 0]), 1.0, 0.03, -1.0)
    torch.testing.assert_close(rewards, torch.tensor([-1.0, -0.03 * math.log(2)]))  # clipped, and not
    (values.sum() + rewards.sum()).backward()
    assert q.grad is not None and q.grad.isfinite().all()


def test_at_a_small_temperature_the_soft_value_is_the_largest() -> None:
    q = torch.randn(16, 6)
    torch.testing.assert_close(soft_value(q, 1e-4), q.max(dim=1).values, rtol=0, atol=1e-3)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", ["huber", "mse"])
@pytest.mark.parametrize("dueling", [False, True])
def test_an_update_is_the_gradient_step_of_equation_1(dueling: bool, loss: str, weighted: bool) -> None:
    learner = learner_of("algo=munchausen", "algo.temperature=0.3", f"algo.loss={loss}", f"model.dueling={dueling}")

    def transition(i: int, batch: Batch, online: nn.Module, target: nn.Module) -> tuple[torch.Tensor, float]:
        with torch.no_grad():
            q, next_q = (target(observation(batch, i, after))[0].tolist() for after in (False, True))
        bonus = 0.3 * math.log(policy(q, 0.3)[batch.actions[i]])
        value = sum(p * (v - 0.3 * math.log(p)) for p, v in zip(policy(next_q, 0.3), next_q, strict=True))
        goal = float(batch.rewards[i]) + 0.9 * max(-1.0, bonus) + float(batch.discounts[i]) * value
        error = online(observation(batch, i))[0, batch.actions[i]] - goal
        return error**2 if loss == "mse" else nn.functional.huber_loss(error, torch.zeros(())), abs(error.item())

    check_update(learner, weighted, transition)
