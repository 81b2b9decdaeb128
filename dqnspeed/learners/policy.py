"""How actions are chosen from a network, in the main process and in actors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from dqnspeed.config import ExecutionConfig, ExplorationConfig
from dqnspeed.learners.execution import graphs, precision


class EpsilonGreedy:
    """Random actions with probability epsilon, else the greedy ones of ``network`` (shared with the learner)."""

    def __init__(
        self,
        network: nn.Module,
        num_actions: int,
        execution: ExecutionConfig,
        device: torch.device,
        rng: np.random.Generator,
    ):
        self._network, self._num_actions = network, num_actions
        self._execution, self._device, self._rng = execution, device, rng

    def state_dict(self) -> dict[str, Any]:
        return {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._rng.bit_generator.state = state["rng"]

    def __call__(self, observations: np.ndarray, epsilon: float) -> np.ndarray:
        """Actions ``(N,) int64`` for observations ``(N, stack * C, ...)``."""
        count = len(observations)
        actions = self._rng.integers(self._num_actions, size=count)
        greedy = self._rng.random(count) >= epsilon
        if greedy.any():
            with graphs(self._execution), precision(self._execution, self._device):
                q = self._network(torch.from_numpy(observations[greedy]).to(self._device))
            actions[greedy] = q.argmax(dim=1).cpu().numpy()
        return actions


def epsilon_at(step: int, exploration: ExplorationConfig) -> float:
    """Linear schedule: ``start`` until agent step ``decay_start``, ``final`` after ``decay_steps`` more."""
    progress = min(1.0, max(0.0, (step - exploration.decay_start) / exploration.decay_steps))
    return exploration.start + progress * (exploration.final - exploration.start)
