"""Buffers: how experience is stored and sampled."""

from dqnspeed.buffers.base import Buffer
from dqnspeed.buffers.device_storage import DeviceStorage
from dqnspeed.buffers.n_step import Batch, Transitions
from dqnspeed.buffers.replay import Replay, ReplayBuffer
from dqnspeed.buffers.ring_buffer import RingBuffer, Rows, ring_layout
from dqnspeed.buffers.rollout import RolloutBatch, RolloutBuffer
from dqnspeed.buffers.sampler import Sampler
from dqnspeed.buffers.storage import HostStorage, SharedStorage
from dqnspeed.buffers.transition_queue import TransitionQueue
from dqnspeed.buffers.uniform import UniformSampler

__all__ = [
    "Batch",
    "Buffer",
    "DeviceStorage",
    "HostStorage",
    "Replay",
    "ReplayBuffer",
    "RingBuffer",
    "RolloutBatch",
    "RolloutBuffer",
    "Rows",
    "Sampler",
    "SharedStorage",
    "TransitionQueue",
    "Transitions",
    "UniformSampler",
    "ring_layout",
]
