"""Memories: how experience is stored and sampled."""

from dqnspeed.memory.base import Memory, OrderedMemory
from dqnspeed.memory.buffers import LocalBuffers, SharedBuffers
from dqnspeed.memory.n_step import Batch
from dqnspeed.memory.rings import Rings, Rows, ring_layout
from dqnspeed.memory.rollout import RolloutBatch, Rollouts, lambda_returns
from dqnspeed.memory.stream import Stream
from dqnspeed.memory.uniform import UniformReplay

__all__ = [
    "Batch",
    "LocalBuffers",
    "Memory",
    "OrderedMemory",
    "Rings",
    "RolloutBatch",
    "Rollouts",
    "Rows",
    "SharedBuffers",
    "Stream",
    "UniformReplay",
    "lambda_returns",
    "ring_layout",
]
