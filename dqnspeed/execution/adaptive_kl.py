"""A learning rate that is steered by what updates do to a policy."""

from __future__ import annotations

import torch
from torch import Tensor

from dqnspeed.execution.optimizers import annealed

STEP, TOLERANCE = 1.2, 1.5
LEAST, MOST = 0.05, 8.0


class Steering:
    """A factor of the learning rate that keeps the Kullback-Leibler divergence of a policy from the one that acted near
    a target, which is annealed as learning rates are.

    The mean over ``every`` updates, those of a rollout, may be off by a factor of ``TOLERANCE``, as in section 4 of
    Schulman et al. (2017), where the weight of a penalty is adapted so. The divergence grows from a rollout's first
    update to its last: the mean over fewer would swing.

    Attributes:
        state: the factor, and the divergences since it was last looked at; ``(2,) float64`` on the device.
    """

    def __init__(self, target: float, target_final: float, decay_updates: float, every: int, device: torch.device):
        self._target, self._target_final, self._decay_updates = target, target_final, decay_updates
        self._every = every
        exact = "cpu" if device.type == "mps" else device  # which has no float64
        self.state = torch.tensor([1.0, 0.0], dtype=torch.float64, device=exact)
        self._factor = 1.0  # as the host knows it

    def factor(self, on_device: bool) -> float | Tensor:
        """That of the next step, ``() float64`` on the device where it is captured as a graph."""
        return self.state[0] if on_device else self._factor

    def load(self, state: Tensor) -> None:
        """Go on from a ``state`` that was saved."""
        self.state.copy_(state)
        self._factor = self.state[0].item()

    def see(self, divergence: Tensor, now: int | Tensor) -> None:
        """Take in the mean divergence ``()``, nats, of the update that follows on ``now`` others, ``()`` on the device
        where it is captured as a graph."""
        target = annealed(now, self._target, self._target_final, self._decay_updates)
        factor, total = self.state[0], self.state[1] + divergence.to(self.state)
        off = total / (self._every * target)
        change = 1 / STEP ** ((off > TOLERANCE).double() - (off < 1 / TOLERANCE).double())
        looked = torch.stack([(factor * change).clamp(LEAST, MOST), torch.zeros_like(total)])
        due = (now + 1) % self._every == 0
        if isinstance(due, Tensor):
            self.state.copy_(torch.where(due, looked, torch.stack([factor, total])))
        elif due:
            self.load(looked)  # the host waits for the device, once in so many updates
        else:
            self.state[1] = total
