"""Interface of the options of ``exploration``."""

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
    """Option of ``exploration``: how an agent with action values tries actions other than the best one.

    The default is epsilon-greedy with the epsilon of :meth:`epsilon_at`.
    """

    def epsilon_at(self, step: int) -> float:
        """Epsilon at an agent step of the run."""
        return 0.0

    def per_env_epsilon(self, epsilon: float, envs: range, total_envs: int) -> float | np.ndarray:
        """Epsilon of each of the environments ``envs``, of ``total_envs`` of all actors.

        Args:
            epsilon: epsilon of the run, by :meth:`epsilon_at`.
        """
        return epsilon

    def linear(self, inputs: int, outputs: int) -> nn.Module:
        """Fully connected layer of the network."""
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
        """Policy that acts with ``network``.

        Args:
            values: the learner needs the largest action value of each observation that was acted on.
        """
        return EpsilonGreedy(network, num_actions, execution, device, rng, values)

    def random_steps(self) -> float | None:
        """Agent steps with random actions until these are rare; ``None`` if actions are not random at first."""
        return None

    def settled(self) -> Exploration:
        """Copy of the option that explores from the start as it does at the end."""
        return self

    def sentence(self) -> str:
        """Description for the log at the start of a run."""
        return self.name
