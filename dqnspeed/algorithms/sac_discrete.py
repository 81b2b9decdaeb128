"""Soft actor-critic for discrete actions (Christodoulou 2019): expectations over all actions in place of draws.

In all of these ``log_probs`` are the policy's ``(B, A)``, normalised and finite, as log_softmax gives them, and ``q1``
and ``q2`` the action values ``(B, A)`` of two critics.
"""

from __future__ import annotations

import torch
from torch import Tensor


def soft_state_value(log_probs: Tensor, q1: Tensor, q2: Tensor, temperature: Tensor) -> Tensor:
    """``sum_a pi(a) (min(q1(a), q2(a)) - temperature * log pi(a))``, ``(B,)`` (equation 10)."""
    return (log_probs.exp() * (torch.minimum(q1, q2) - temperature * log_probs)).sum(dim=1)


def critic_target(
    rewards: Tensor, discounts: Tensor, log_probs: Tensor, q1: Tensor, q2: Tensor, temperature: Tensor
) -> Tensor:
    """What both critics learn to tell of the action taken, ``(B,)``, without a gradient (algorithm 1).

    Args:
        rewards: ``(B,)``; ``discounts``: ``(B,)``, 0 where the episode terminated.
        log_probs, q1, q2: of the next observations, ``q1`` and ``q2`` by the target critics.
    """
    return (rewards + discounts * soft_state_value(log_probs, q1, q2, temperature)).detach()


def critic_loss(q: Tensor, actions: Tensor, targets: Tensor) -> Tensor:
    """Half the squared error of one critic's ``q`` of ``actions`` ``(B,) int64``, ``(B,)`` (algorithm 1)."""
    return 0.5 * (q.gather(1, actions[:, None])[:, 0] - targets).square()


def policy_loss(log_probs: Tensor, q1: Tensor, q2: Tensor, temperature: Tensor) -> Tensor:
    """``sum_a pi(a) (temperature * log pi(a) - min(q1(a), q2(a)))``, ``(B,)``, to the policy alone (equation 12)."""
    return -soft_state_value(log_probs, q1.detach(), q2.detach(), temperature.detach())


def temperature_loss(log_probs: Tensor, log_temperature: Tensor, target_entropy: float) -> Tensor:
    """``sum_a pi(a) (-temperature * (log pi(a) + target_entropy))``, ``(B,)``, to the temperature alone (equation 11).

    Args:
        log_temperature: ``()``, what is learnt, so that the temperature stays above 0.
        target_entropy: in nats; the temperature falls while the policy's is above it.
    """
    log_probs = log_probs.detach()
    return (log_probs.exp() * (-log_temperature.exp() * (log_probs + target_entropy))).sum(dim=1)
