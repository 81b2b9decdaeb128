"""Adam with Nesterov momentum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from dqnspeed.config.registry import register
from dqnspeed.execution.optimizers import Adam


@register("optimizer", "nadam")
@dataclass(frozen=True)
class NAdam(Adam):
    """Dozat (2016)."""

    def make(self, parameters: Sequence[nn.Parameter], device: torch.device) -> torch.optim.Optimizer:
        return torch.optim.NAdam(parameters, self.lr, (self.beta1, self.beta2), self.eps, self.weight_decay)
