"""Metrics of updates, kept on the device until they are read."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

LIKELY_CAUSES = (
    "Likely causes: optimizer.lr too high, large rewards (try wrappers.clip_reward=true, algo.max_grad_norm=10 or, "
    "where the algorithm has it, algo.loss=huber), or an environment that returns NaN."
)
MAX_UPDATES = 2**15  # kept between two calls of means()


class NotFiniteError(RuntimeError):
    """A metric of an update, or a weight, became infinite or NaN."""


class UpdateMetrics:
    """Metrics of the newest updates. Recording them does not wait for the device.

    Args:
        names: of the metrics of an update, in their order and without their ``train/``.
    """

    def __init__(self, names: Sequence[str], device: torch.device):
        self._names, self._device = [f"train/{name}" for name in names], device
        self._recorded = torch.zeros(MAX_UPDATES, len(names), device=device)
        self._reported = 0

    def record(self, update_count: int | Tensor, metrics: Sequence[Tensor]) -> None:
        """Keep the metrics, ``()`` each, of the update after ``update_count`` others."""
        row = torch.stack([metric.to(self._device, torch.float32, non_blocking=True) for metric in metrics]).detach()
        if isinstance(update_count, Tensor):
            self._recorded.index_copy_(0, (update_count % MAX_UPDATES).view(1), row[None])
        else:
            self._recorded[update_count % MAX_UPDATES] = row

    def means(self, updates: int) -> dict[str, float]:
        """Means over the updates since the last call, ``updates`` in all; NaN if there were none. Waits for the device.

        Raises:
            NotFiniteError: a metric of one of these updates is infinite or NaN.
        """
        count = min(updates - self._reported, MAX_UPDATES)
        if not count:
            return dict.fromkeys(self._names, math.nan)
        order = torch.arange(updates - count, updates, device=self._device)
        recorded = self._recorded[order % MAX_UPDATES].cpu()
        self._reported = updates
        bad = ~torch.isfinite(recorded).all(dim=1)
        if bad.any():
            number = updates - count + int(bad.nonzero()[0]) + 1
            named = zip(self._names, recorded[bad][0].tolist(), strict=True)
            values = ", ".join(f"{name.partition('/')[2]} {value:g}" for name, value in named)
            raise NotFiniteError(f"update {number}: {values} is not finite. {LIKELY_CAUSES}")
        return dict(zip(self._names, recorded.mean(dim=0).tolist(), strict=True))

    def restart(self, updates: int) -> None:
        """Go on after ``updates`` updates of an earlier process, whose metrics are not here."""
        self._reported = updates
