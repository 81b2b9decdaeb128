"""A table of action values with the interface of a network."""

from __future__ import annotations

import torch
from torch import Tensor

from dqnspeed.networks.base import Network
from dqnspeed.networks.preprocess import Preprocess


class Table(Network):
    """Action values of numbered states, which come one-hot as ``(B, num_states)``."""

    values: Tensor

    def __init__(self, num_states: int, num_actions: int):
        super().__init__(Preprocess((num_states,), scale=1.0, subtract=False))
        self.register_buffer("values", torch.zeros(num_states, num_actions))

    def forward(self, observations: Tensor) -> Tensor:
        return self.values[observations.argmax(dim=1)]
