"""Memories: how experience is stored and sampled."""

from dqnspeed.buffers.base import Memory, OrderedMemory
from dqnspeed.buffers.n_step import Batch
from dqnspeed.buffers.ring_buffer import Rings, Rows, ring_layout
from dqnspeed.buffers.rollout import RolloutBatch, Rollouts, lambda_returns
from dqnspeed.buffers.storage import LocalBuffers, SharedBuffers
from dqnspeed.buffers.transition_queue import Stream
from dqnspeed.buffers.uniform import UniformReplay

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
