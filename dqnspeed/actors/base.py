"""What actors are, and the options of ``parallelism``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from dqnspeed.actors.stepper import Collected
from dqnspeed.config.schema import ParallelismConfig, RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.memory import Memory
from dqnspeed.networks.base import Network


class Actors(Protocol):
    """What the training loop asks of every parallelism."""

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds spent in each part of acting."""

    def begin(self) -> None:
        """Start the clock's first step."""

    def dispatch(self) -> None:
        """Set environments in motion where they can move while the learner trains."""

    def collect(self, limit: float, wait: bool) -> Collected:
        """Bring what was experienced into the memory.

        Args:
            limit: agent steps, counted over the whole run, beyond which actors must wait for the learner.
            wait: there is nothing to learn meanwhile.
        """

    def pause(self) -> Collected:
        """Bring every environment to rest until :meth:`proceed`; returns what came in until then."""

    def state_dict(self) -> dict[str, Any]:
        """Everything the actors need to go on, by actor; only between :meth:`pause` and :meth:`proceed`."""

    def proceed(self) -> None:
        """Let the environments move again."""

    def close(self) -> None:
        """End every environment, thread and process."""


@dataclass(frozen=True)
class Parallelism(ParallelismConfig):
    """An option of ``parallelism``: where experience comes from.

    ``processes`` and ``overlaps`` say what the rest of the configuration must know of it.
    """

    def make(
        self,
        run: RunConfig,
        spec: EnvSpec,
        network: Network,
        memory: Memory,
        lock: Any,
        device: torch.device,
        state: Mapping[str, Any] | None = None,
        segment: int = 0,
    ) -> Actors:
        """The actors, which act with ``network`` (the learner's own) on ``device`` and write into ``memory``.

        Args:
            lock: guards the memory's cursors, where actors in other processes write them.
            state: what they go on from, of :meth:`Actors.state_dict`; ``segment``: how often the run was resumed.
        """
        raise NotImplementedError
