"""The interface of an algorithm: its options, buffer, network, learner and policy, and what it cannot do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

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
        """The network that is trained, and that actors act with."""

    def attach(self, buffer: Any) -> None:
        """Called once with the algorithm's buffer, before the first batch."""

    def on_training_start(self, frames: np.ndarray) -> None:
        """Called once, before the first update, with frames ``(K, C, ...)`` of random play."""

    def warm_up(self, batch: Any) -> None:
        """Do once, without effect, all that an update on ``batch`` does, so that the first update is not slower."""

    def update(self, batch: Any) -> None:
        """Learn from one batch of the algorithm's buffer."""

    def stats(self) -> dict[str, float]:
        """Metrics: means over the updates since the last call, NaN if there were none.

        Raises:
            NotFiniteError: a metric or a weight is infinite or NaN.
        """

    def state_dict(self) -> dict[str, Any]:
        """Everything the learner needs to continue."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore :meth:`state_dict`, saved as arrays."""


@base_of("algo")
@dataclass(frozen=True)
class Algorithm(AlgoConfig):
    """An option of ``algo``: a frozen dataclass whose fields are its options, and whose methods make its parts.

    The three bases in ``data_sources.py`` bring the buffer; most algorithms add options, a learner with a loss, and a
    network of their own if they need one. ``check`` raises :class:`ConfigError` for combinations that cannot work;
    ``replays`` and ``uses`` are for the rest of the configuration.
    """

    explores_forever: ClassVar[bool] = False  # epsilon never falls: evaluations show what it learnt

    def layout(self, run: RunConfig, spec: EnvSpec) -> Layout:
        """All that the buffer keeps: a ring for each environment of all actors."""
        raise NotImplementedError

    def arrays(self, run: RunConfig, spec: EnvSpec, device: torch.device | None) -> Layout:
        """The arrays that actors write, of a buffer that is held on ``device``, or on the host."""
        return self.layout(run, spec)

    def size(self, run: RunConfig) -> str:
        """``KEY=VALUE`` of the option that the buffer's size is proportional to."""
        raise NotImplementedError

    def buffer(self, run: RunConfig, spec: EnvSpec, device: torch.device | None) -> Buffer:
        """The buffer it learns from, held on ``device`` or on the host; actor processes write into shared arrays."""
        raise NotImplementedError

    def network(self, run: RunConfig, spec: EnvSpec) -> Network:
        """The network it trains and acts with, on the CPU."""
        raise NotImplementedError

    def learner(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
        """The learner, which trains the network."""
        raise NotImplementedError

    def policy(
        self, run: RunConfig, spec: EnvSpec, network: Network, device: torch.device, rng: np.random.Generator
    ) -> Policy:
        """The policy that acts during training."""
        return typed(run.exploration, Exploration).policy(network, spec.num_actions, run.execution, device, rng)

    def epsilon_at(self, run: RunConfig, step: int) -> float:
        """The chance of a random action at an agent step; NaN for a policy without epsilon."""
        return typed(run.exploration, Exploration).epsilon_at(step) if "exploration" in self.uses else math.nan

    def epsilons(self, run: RunConfig, epsilon: float, envs: range, total: int) -> float | np.ndarray:
        """The epsilon of each of the environments ``envs``, of ``total`` of all actors; ``epsilon`` is the run's."""
        exploration = typed(run.exploration, Exploration)
        return exploration.per_env_epsilon(epsilon, envs, total) if "exploration" in self.uses else epsilon

    def check_spec(self, run: RunConfig, spec: EnvSpec) -> None:
        """Raise :class:`ConfigError` if it cannot learn an environment of these shapes."""
        if "model" in self.uses:
            typed(run.model, Model).check_shape(spec.observation_shape)

    @property
    def entropy_bonus(self) -> float | None:
        """Weight of the entropy in the loss, of algorithms whose policy is random."""
        return None

    def annealed(self) -> Iterator[tuple[str, float, float]]:
        """Numbers annealed as the learning rate is: name, first and last value."""
        yield from ()
