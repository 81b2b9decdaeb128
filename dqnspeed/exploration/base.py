"""What an option of ``exploration`` is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from dqnspeed.config.registry import base_of
from dqnspeed.config.schema import ExecutionConfig, ExplorationConfig
from dqnspeed.exploration.epsilon_greedy import EpsilonGreedy
from dqnspeed.exploration.policy import Policy
from dqnspeed.networks.base import Network


@base_of("exploration")
@dataclass(frozen=True)
class Exploration(ExplorationConfig):
    """An option of ``exploration``: how an agent that values actions comes to try others than the best one."""

    def epsilon_at(self, step: int) -> float:
        """The chance of a random action at an agent step of the run."""
        return 0.0

    def per_env_epsilon(self, epsilon: float, lanes: range, total: int) -> float | np.ndarray:
        """That of each of the environments ``lanes``, of ``total`` of all actors, where ``epsilon`` is the run's."""
        return epsilon

    def linear(self, inputs: int, outputs: int) -> nn.Module:
        """A fully connected layer of the network."""
        return nn.Linear(inputs, outputs)

    def policy(
        self,
        network: Network,
        num_actions: int,
        execution: ExecutionConfig,
        device: torch.device,
        rng: np.random.Generator,
        values: bool = False,
    ) -> Policy:
        """The policy that acts; for ``values`` see :class:`EpsilonGreedy`."""
        return EpsilonGreedy(network, num_actions, execution, device, rng, values)

    def random_steps(self) -> float | None:
        """Agent steps of a run with random actions until they have become rare, or ``None`` where there are none."""
        return None

    def settled(self) -> Exploration:
        """The same as it is at last."""
        return self

    def sentence(self) -> str:
        """What a run says of it at its start."""
        return self.name
