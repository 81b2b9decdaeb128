"""Memories: how experience is stored and sampled."""

from dqnspeed.buffers.base import Buffer, OrderedBuffer
from dqnspeed.buffers.n_step import Batch
from dqnspeed.buffers.ring_buffer import Rings, Rows, ring_layout
from dqnspeed.buffers.rollout import RolloutBatch, RolloutBuffer, lambda_returns
from dqnspeed.buffers.storage import LocalBuffers, SharedBuffers
from dqnspeed.buffers.transition_queue import TransitionQueue
from dqnspeed.buffers.uniform import UniformReplay

__all__ = [
    "Batch",
    "Buffer",
    "LocalBuffers",
    "OrderedBuffer",
    "Rings",
    "RolloutBatch",
    "RolloutBuffer",
    "Rows",
    "SharedBuffers",
    "TransitionQueue",
    "UniformReplay",
    "lambda_returns",
    "ring_layout",
]
