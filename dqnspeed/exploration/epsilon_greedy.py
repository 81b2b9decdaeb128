"""Epsilon-greedy actions, and the options of ``exploration``."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import ExecutionConfig, ExplorationConfig
from dqnspeed.exploration.policy import Acted, NetworkPolicy, Policy
from dqnspeed.networks.base import Network


@dataclass(frozen=True)
class Exploration(ExplorationConfig):
    """An option of ``exploration``: how an agent that values actions comes to try others than the best one."""

    def epsilon_at(self, step: int) -> float:
        """The chance of a random action at an agent step of the run."""
        return 0.0

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


@register("exploration", "linear")
@dataclass(frozen=True)
class LinearEpsilon(Exploration):
    """Epsilon falls in a straight line (Mnih et al. 2015)."""

    start: float = option("epsilon at first", ge=0, le=1)
    final: float = option("epsilon at last", ge=0, le=1)
    decay_start: int = option("agent step at which epsilon begins to fall", ge=0)
    decay_steps: int = option("agent steps it takes from start to final", ge=1)

    def epsilon_at(self, step: int) -> float:
        """``start`` until agent step ``decay_start``, ``final`` after ``decay_steps`` more."""
        progress = min(1.0, max(0.0, (step - self.decay_start) / self.decay_steps))
        return self.start + progress * (self.final - self.start)

    def random_steps(self) -> float | None:
        return self.start * self.decay_start + (self.start + self.final) / 2 * self.decay_steps

    def settled(self) -> LinearEpsilon:
        return replace(self, start=self.final)

    def sentence(self) -> str:
        begin, end = self.decay_start, self.decay_start + self.decay_steps
        fall = f" to {self.final:g} from agent step {begin:,} to {end:,}" if self.start != self.final else ""
        return f"epsilon {self.start:g}{fall}"


def exploration_of(config: ExplorationConfig) -> Exploration:
    """``config`` as what it is."""
    assert isinstance(config, Exploration)
    return config


class EpsilonGreedy(NetworkPolicy):
    """Random actions with probability epsilon, else the best ones by ``network`` (shared with the learner).

    Args:
        num_actions: of the environment.
        values: tell the largest action value of each observation, which then costs a forward pass for all of them.
    """

    def __init__(
        self,
        network: Network,
        num_actions: int,
        execution: ExecutionConfig,
        device: torch.device,
        rng: np.random.Generator,
        values: bool = False,
    ):
        super().__init__(network, execution, device, rng)
        self._num_actions, self._values = num_actions, values
        # A CPU computes only what is asked for; elsewhere batches of one size cost less than smaller ones.
        self._all = values or device.type != "cpu"

    def __call__(self, observations: np.ndarray, epsilon: float) -> Acted:
        count = len(observations)
        actions = self._rng.integers(self._num_actions, size=count)
        greedy = self._rng.random(count) >= epsilon
        if not greedy.any() and not self._values:
            return actions, {}
        versions = self._versions(count) if self._values else None
        seen = np.ones(count, bool) if self._all else greedy
        q = self._compute(observations[seen])
        actions[greedy] = q.argmax(axis=1)[greedy[seen]]
        return actions, {} if versions is None else {"values": q.max(axis=1), "versions": versions}

    def output(self, observations: Tensor) -> Tensor:
        q: Tensor = self._network(observations)
        return q
