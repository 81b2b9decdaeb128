"""A learning rate that follows the divergence of a policy from the policy that acted."""

from __future__ import annotations

import torch
from torch import Tensor

from dqnspeed.execution.optimizers import annealed

CHANGE, TOLERANCE = 1.2, 1.5
MIN_LR_FACTOR, MAX_LR_FACTOR = 0.05, 8.0


class AdaptiveKL:
    """Factor of the learning rate that keeps the Kullback-Leibler divergence near a target, annealed as the rate is.

    After each rollout the factor changes by ``CHANGE`` if the mean divergence is off by more than ``TOLERANCE``.
    Section 4 of Schulman et al. (2017) adapts the weight of a penalty this way. The divergence grows from a rollout's
    first update to its last, so a mean over fewer updates would swing.

    Attributes:
        state: the factor, and the sum of divergences since its last change; ``(2,) float64`` on the device.
    """

    def __init__(self, target: float, target_final: float, updates_per_rollout: int, device: torch.device):
        self._target, self._target_final = target, target_final
        self._updates_per_rollout = updates_per_rollout
        exact = "cpu" if device.type == "mps" else device  # mps has no float64
        self.state = torch.tensor([1.0, 0.0], dtype=torch.float64, device=exact)
        self._factor = 1.0  # the host's copy

    def factor(self, on_device: bool) -> float | Tensor:
        """Factor of the next step; ``() float64`` if a CUDA graph reads it on the device."""
        return self.state[0] if on_device else self._factor

    def load(self, state: Tensor) -> None:
        """Continue from a saved ``state``."""
        self.state.copy_(state)
        self._factor = self.state[0].item()

    def observe(self, divergence: Tensor, update_count: int | Tensor, decay_updates: float) -> None:
        """Count the mean divergence ``()``, in nats, of the update after ``update_count`` others.

        Args:
            decay_updates: updates over which the target falls.
        """
        target = annealed(update_count, self._target, self._target_final, decay_updates)
        factor, total = self.state[0], self.state[1] + divergence.to(self.state)
        ratio = total / (self._updates_per_rollout * target)
        change = 1 / CHANGE ** ((ratio > TOLERANCE).double() - (ratio < 1 / TOLERANCE).double())
        adapted = torch.stack([(factor * change).clamp(MIN_LR_FACTOR, MAX_LR_FACTOR), torch.zeros_like(total)])
        due = (update_count + 1) % self._updates_per_rollout == 0
        if isinstance(due, Tensor):
            self.state.copy_(torch.where(due, adapted, torch.stack([factor, total])))
        elif due:
            self.load(adapted)  # the host waits for the device, once in a rollout
        else:
            self.state[1] = total
