"""Interfaces of an algorithm and of its learner."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from dqnspeed.buffers.base import Buffer
from dqnspeed.buffers.storage import Layout
from dqnspeed.config.registry import base_of
from dqnspeed.config.schema import AlgoConfig, RunConfig, typed
from dqnspeed.envs import EnvSpec
from dqnspeed.exploration.base import Exploration
from dqnspeed.exploration.policy import Policy
from dqnspeed.networks.base import Model, Network


class Learner(Protocol):
    """The interface that the training loop uses."""

    updates: int
    started: bool

    @property
    def network(self) -> Network:
        """Network that is trained, and that actors act with."""

    def start_from(self, weights: Mapping[str, Tensor]) -> None:
        """Copy ``weights`` into the network and its copies; called before the first update."""

    def attach(self, buffer: Any) -> None:
        """Take the algorithm's buffer; called once, before the first batch."""

    def on_training_start(self, frames: np.ndarray) -> None:
        """Take frames ``(K, C, ...)`` of random play; called once, before the first update."""

    def warm_up(self, batch: Any) -> None:
        """Do the work of an update on ``batch`` without an effect, so that the first update is not slower."""

    def update(self, batch: Any) -> None:
        """Learn from one batch of the algorithm's buffer."""

    def stats(self) -> dict[str, float]:
        """Means of the metrics over the updates since the last call, NaN if there were none.

        Raises:
            NotFiniteError: a metric or a weight is infinite or NaN.
        """

    def state_dict(self) -> dict[str, Any]:
        """State from which the learner continues."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore :meth:`state_dict`, saved as arrays."""


@base_of("algo")
@dataclass(frozen=True)
class Algorithm(AlgoConfig):
    """An option of ``algo``: a frozen dataclass whose fields are its options, and whose methods make its parts.

    The three bases in ``data_sources.py`` make the buffer. Most algorithms add options and a learner with a loss, some
    also a network. ``check`` raises :class:`ConfigError` for combinations that cannot work. The rest of the
    configuration reads ``replays`` and ``uses``.

    Attributes:
        explores_forever: epsilon never falls, so only evaluations show the learnt behaviour.
    """

    explores_forever: ClassVar[bool] = False

    def layout(self, run: RunConfig, spec: EnvSpec) -> Layout:
        """Layout of the whole buffer: a ring for each environment of all actors."""
        raise NotImplementedError

    def arrays(self, run: RunConfig, spec: EnvSpec, device: torch.device | None) -> Layout:
        """Layout of the arrays that actors write, for a buffer on ``device`` or on the host."""
        return self.layout(run, spec)

    def size(self, run: RunConfig) -> str:
        """``KEY=VALUE`` of the option that the buffer's size is proportional to."""
        raise NotImplementedError

    def buffer(self, run: RunConfig, spec: EnvSpec, device: torch.device | None) -> Buffer:
        """Make the buffer, on ``device`` or on the host; actor processes write into shared arrays."""
        raise NotImplementedError

    def network(self, run: RunConfig, spec: EnvSpec) -> Network:
        """Make the network, on the CPU."""
        raise NotImplementedError

    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        """Make the learner, which trains the network."""
        raise NotImplementedError

    def policy(
        self, run: RunConfig, spec: EnvSpec, network: Network, device: torch.device, rng: np.random.Generator
    ) -> Policy:
        """Make the policy that acts during training."""
        return typed(run.exploration, Exploration).policy(network, spec.num_actions, run.execution, device, rng)

    def epsilon_at(self, run: RunConfig, step: int) -> float:
        """Probability of a random action at an agent step; NaN for a policy without epsilon."""
        return typed(run.exploration, Exploration).epsilon_at(step) if "exploration" in self.uses else math.nan

    def epsilons(self, run: RunConfig, epsilon: float, envs: range, total: int) -> float | np.ndarray:
        """Epsilon of each of the environments ``envs``, of ``total`` of all actors, given the run's ``epsilon``."""
        exploration = typed(run.exploration, Exploration)
        return exploration.per_env_epsilon(epsilon, envs, total) if "exploration" in self.uses else epsilon

    def check_spec(self, run: RunConfig, spec: EnvSpec) -> None:
        """Raise :class:`ConfigError` if the algorithm cannot learn an environment of these shapes."""
        if "model" in self.uses:
            typed(run.model, Model).check_shape(spec.observation_shape)

    def metrics(self, learner: Any) -> dict[str, float]:
        """Metrics of a report in addition to the metrics of updates."""
        return {}

    def annealed(self) -> Iterator[tuple[str, float, float]]:
        """Numbers annealed as the learning rate is: name, first and last value."""
        yield from ()
