"""The distribution of returns on fixed atoms (Bellemare et al. 2017)."""

from __future__ import annotations

from torch import Tensor


def project(probabilities: Tensor, rewards: Tensor, discounts: Tensor, support: Tensor) -> Tensor:
    """The distribution of ``reward + discount * return`` on the atoms of the returns themselves (algorithm 1).

    What falls between two atoms is shared between them, and what falls beyond the outermost belongs to those.

    Args:
        probabilities: ``(B, Z) float32`` of the atoms.
        rewards: ``(B,)``; ``discounts``: ``(B,)``, 0 where the episode terminated.
        support: ``(Z,)`` equally spaced returns, ascending, at least two.

    Returns:
        ``(B, Z)`` probabilities of the same atoms.
    """
    low, high = support[0], support[-1]
    spacing = (high - low) / (len(support) - 1)
    returns = (rewards[:, None] + discounts[:, None] * support).clamp(low, high)
    apart = (returns[:, None, :] - support[:, None]).abs() / spacing  # (B, Z to, Z from)
    shares = (1 - apart).clamp(min=0)
    return (shares * probabilities[:, None, :]).sum(dim=2)
