"""The losses against the equations of Christodoulou (2019), written out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dqnspeed.algorithms.sac_discrete import critic_loss, critic_target, policy_loss, temperature_loss

B, A = 6, 4


def policy() -> tuple[Tensor, Tensor]:
    """Logits, and the logarithms of the policy's probabilities."""
    logits = torch.randn(B, A, requires_grad=True)
    return logits, torch.log_softmax(logits, dim=1)


def test_the_target_is_the_soft_value_of_the_lesser_critic() -> None:
    _, log_probs = policy()
    rewards, q1, q2 = torch.randn(B), torch.randn(B, A), torch.randn(B, A)
    discounts = torch.tensor([0.0, 0.5, 0.9, 0.99, 0.99, 1.0])
    targets = critic_target(rewards, discounts, log_probs, q1, q2, torch.tensor(0.7))
    for i in range(B):
        value = 0.0
        for a in range(A):
            log_p = log_probs[i, a].item()
            value += math.exp(log_p) * (min(q1[i, a].item(), q2[i, a].item()) - 0.7 * log_p)
        assert targets[i].item() == pytest.approx(rewards[i].item() + discounts[i].item() * value, abs=1e-5)
    assert not targets.requires_grad


def test_a_critic_learns_of_the_action_taken_alone() -> None:
    q, actions, targets = torch.randn(B, A, requires_grad=True), torch.tensor([0, 1, 2, 3, 0, 1]), torch.randn(B)
    losses = critic_loss(q, actions, targets)
    losses.sum().backward()
    assert q.grad is not None
    for i in range(B):
        error = (q[i, actions[i]] - targets[i]).item()
        assert losses[i].item() == pytest.approx(error**2 / 2, abs=1e-6)
        expected = [error if a == actions[i] else 0.0 for a in range(A)]
        torch.testing.assert_close(q.grad[i], torch.tensor(expected))


def test_the_policy_loss_is_equation_12_and_moves_the_policy_alone() -> None:
    logits, log_probs = policy()
    q1, q2 = (torch.randn(B, A, requires_grad=True) for _ in range(2))
    temperature = torch.tensor(0.7, requires_grad=True)
    losses = policy_loss(log_probs, q1, q2, temperature)
    for i in range(B):
        expected = 0.0
        for a in range(A):
            log_p = log_probs[i, a].item()
            expected += math.exp(log_p) * (0.7 * log_p - min(q1[i, a].item(), q2[i, a].item()))
        assert losses[i].item() == pytest.approx(expected, abs=1e-5)
    losses.sum().backward()
    assert logits.grad is not None and logits.grad.abs().sum() > 0
    assert q1.grad is None and q2.grad is None and temperature.grad is None


def test_the_policy_loss_is_least_where_the_policy_is_the_softmax_of_the_values() -> None:
    q = torch.randn(1, A)
    best = policy_loss(torch.log_softmax(q / 0.7, dim=1), q, q, torch.tensor(0.7))
    assert best.item() == pytest.approx(-0.7 * float(torch.logsumexp(q / 0.7, dim=1)), abs=1e-5)
    for _ in range(20):
        other = policy_loss(torch.log_softmax(q / 0.7 + 0.3 * torch.randn(1, A), dim=1), q, q, torch.tensor(0.7))
        assert other >= best - 1e-6


def test_the_temperature_loss_is_equation_11_and_leads_to_the_target_entropy() -> None:
    logits, log_probs = policy()
    log_temperature = torch.tensor(math.log(0.7), requires_grad=True)
    losses = temperature_loss(log_probs, log_temperature, target_entropy=1.2)
    for i in range(B):
        expected = 0.0
        for a in range(A):
            log_p = log_probs[i, a].item()
            expected += math.exp(log_p) * -0.7 * (log_p + 1.2)
        assert losses[i].item() == pytest.approx(expected, abs=1e-5)
    losses.sum().backward()
    assert logits.grad is None


@pytest.mark.parametrize(("target", "falls"), [(0.5, True), (1.3, False)])
def test_the_temperature_falls_while_the_entropy_is_above_its_target(target: float, falls: bool) -> None:
    log_probs = torch.log(torch.tensor([[0.5, 0.3, 0.1, 0.1]]))  # an entropy of 1.17 nats
    log_temperature = torch.tensor(0.0, requires_grad=True)
    temperature_loss(log_probs, log_temperature, target).mean().backward()
    assert log_temperature.grad is not None
    assert (log_temperature.grad > 0) == falls
