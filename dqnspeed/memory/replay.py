"""The options of ``replay``: memories that keep experience and draw from it many times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dqnspeed.config.schema import ReplayConfig
from dqnspeed.memory.base import Memory
from dqnspeed.memory.buffers import LocalBuffers, SharedBuffers


@dataclass(frozen=True)
class ReplayArguments:
    """What every replay is made with, under the names of :class:`~dqnspeed.memory.uniform.UniformReplay`.

    Args:
        buffers: of :func:`~dqnspeed.memory.rings.ring_layout`.
        n_step: rewards summed in a transition; ``gamma``: their discount.
        concurrent: other processes write into the buffers; ``lock`` guards their cursors then.
    """

    buffers: LocalBuffers | SharedBuffers
    stack: int
    n_step: int
    gamma: float
    seed: int
    concurrent: bool = False
    lock: Any = None


@dataclass(frozen=True)
class Replay(ReplayConfig):
    """An option of ``replay``."""

    def make(self, arguments: ReplayArguments) -> Memory:
        """The memory, whose batches are :class:`~dqnspeed.memory.n_step.Batch`."""
        raise NotImplementedError


def replay_of(config: ReplayConfig) -> Replay:
    """``config`` as what it is."""
    assert isinstance(config, Replay)
    return config
