"""Soft values, and a reward for actions that the policy is sure of (Vieillard et al. 2020).

The policy is that of the action values at a temperature: pi = softmax(q / temperature). What is computed from
q / temperature takes its largest entry away first, as appendix B asks: at a temperature of 0.03 an exponential of it
would overflow.
"""

from __future__ import annotations

import torch
from torch import Tensor


def soft_value(q: Tensor, temperature: float) -> Tensor:
    """``sum_a pi(a) (q(a) - temperature * log pi(a))`` of action values ``(B, A)``, ``(B,)`` (equation 2)."""
    return temperature * torch.logsumexp(q / temperature, dim=1)


def munchausen_reward(
    rewards: Tensor, q: Tensor, actions: Tensor, alpha: float, temperature: float, clip: float
) -> Tensor:
    """``reward + alpha * [temperature * log pi(action)]``, ``(B,)``, the bracket between ``clip`` and 0 (equation 2).

    Args:
        q: ``(B, A)`` action values of the observations that ``actions`` ``(B,) int64`` were chosen for.
        clip: the least that the bracket may be, l0 in the paper (-1 there), at most 0.
    """
    log_policy = torch.log_softmax(q / temperature, dim=1).gather(1, actions[:, None])[:, 0]
    return rewards + alpha * (temperature * log_policy).clamp(clip, 0)
