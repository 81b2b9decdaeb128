"""What an algorithm is: its numbers, what it learns from, what it trains, how it acts, and what it refuses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from dqnspeed.config.schema import AlgoConfig, RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.exploration.epsilon_greedy import exploration_of
from dqnspeed.exploration.policy import Policy
from dqnspeed.memory.base import Memory
from dqnspeed.memory.buffers import Layout
from dqnspeed.networks.base import Network
from dqnspeed.networks.torso import model_of


class Learner(Protocol):
    """What the training loop asks of a learner."""

    updates: int
    begun: bool

    @property
    def network(self) -> Network:
        """What is trained, and what actors act with."""

    def begin(self, frames: np.ndarray) -> None:
        """Called once, before the first update, with frames ``(K, C, ...)`` of random play."""

    def warm_up(self, batch: Any) -> None:
        """Do once what an update on ``batch`` does, without a trace, so that no update takes longer for being first."""

    def update(self, batch: Any) -> None:
        """Learn from one batch of what the algorithm's memory gives."""

    def stats(self) -> dict[str, float]:
        """Metrics: means over the updates since the last call, NaN where there were none.

        Raises:
            NotFiniteError: one of them, or a weight, is infinite or NaN.
        """

    def state_dict(self) -> dict[str, Any]:
        """Everything the learner needs to go on."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state_dict`, saved as arrays."""


@dataclass(frozen=True)
class Algorithm(AlgoConfig):
    """An option of ``algo``: a frozen dataclass whose fields are its numbers, and whose methods answer for it.

    What it learns from is answered by the three bases in ``learns_from.py``; most algorithms add numbers, a learner
    with a loss, and a network of their own if they need one. ``check`` raises what it cannot be combined with, and
    ``replays`` and ``uses`` say what the rest of the configuration must know.
    """

    outputs: ClassVar[str] = "action values"  # what its network gives, a number for each action
    errs_on_purpose: ClassVar[bool] = False  # explores for ever, and its returns are judged by evaluations
    without_processes: ClassVar[str] = "parallelism=overlap"  # what to use where actor processes cannot be had
    copies: ClassVar[int] = 0  # of the network that are kept as targets
    observations: ClassVar[int] = 2  # in a sample of a batch: that which was acted on, and the next

    def layout(self, run: RunConfig, spec: EnvSpec) -> Layout:
        """The arrays that the memory needs: a ring for each environment of all actors."""
        raise NotImplementedError

    def size(self, run: RunConfig) -> tuple[str, int, str]:
        """The option that the memory's size is proportional to, its value, and the unit of that."""
        raise NotImplementedError

    def memory(self, run: RunConfig, spec: EnvSpec, lock: Any, device: torch.device | None) -> Memory:
        """What it learns from; in shared memory where actor processes write into it."""
        raise NotImplementedError

    def network(self, run: RunConfig, spec: EnvSpec) -> Network:
        """What it trains and acts with, on the CPU."""
        raise NotImplementedError

    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        """What trains it."""
        raise NotImplementedError

    def policy(
        self, run: RunConfig, spec: EnvSpec, network: Network, device: torch.device, rng: np.random.Generator
    ) -> Policy:
        """How it acts while it trains."""
        return exploration_of(run.exploration).policy(network, spec.num_actions, run.execution, device, rng)

    def update_forward(self, network: Network, observations: torch.Tensor) -> None:
        """Compute what an update computes of ``observations``, by which the memory that it takes is told."""
        network(observations)

    def epsilon_at(self, run: RunConfig, step: int) -> float:
        """The chance of a random action at an agent step; NaN for a policy that has none."""
        return exploration_of(run.exploration).epsilon_at(step) if "exploration" in self.uses else math.nan

    def check_spec(self, run: RunConfig, spec: EnvSpec) -> None:
        """Raise :class:`ConfigError` where it cannot learn an environment of these shapes."""
        if "model" in self.uses:
            model_of(run.model).check_shape(spec.observation_shape)

    def annealed(self) -> Iterator[tuple[str, float, float]]:
        """Numbers that fall as the learning rate does: what they are called, the first and the last."""
        yield from ()
