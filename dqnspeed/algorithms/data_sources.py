"""Sources of experience: a replay, a stream of pieces in their order, or whole rollouts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from dqnspeed.algorithms.base import Algorithm
from dqnspeed.buffers import (
    Buffer,
    DeviceStorage,
    HostStorage,
    Replay,
    ReplayBuffer,
    RolloutBuffer,
    SharedStorage,
    TransitionQueue,
    ring_layout,
)
from dqnspeed.buffers.storage import Layout
from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec

STAGING_BYTES = 2**24  # of frames on their way to the learner; few enough for the /dev/shm of a container
MIN_STAGING_ROWS = 32  # of each environment
SPARE_ROWS = 32  # of rings that are learnt from in order, beside the rows that may wait
FILMED_ROWS = 8000  # of the rings of an on-policy run with videos, which show whole games


@dataclass(frozen=True)
class FromReplay(Algorithm):
    """Keeps transitions of ``n_step`` agent steps in ``replay``, and draws from them for each update."""

    replays = True
    supports_cuda_graph = True
    uses: ClassVar[tuple[str, ...]] = ("model", "optimizer", "replay", "exploration")

    n_step: int = option("agent steps summed before bootstrapping", ge=1, le=1000)
    steps_per_update: int = option("agent steps collected for one update", ge=1)

    def samples_per_step(self, run: RunConfig) -> float | None:
        ratio = run.parallelism.samples_per_step
        if ratio == "free":
            return None
        return self.batch_size / self.steps_per_update if ratio is None else float(ratio)

    def layout(self, run: RunConfig, spec: EnvSpec) -> Layout:
        return ring_layout(run.total_envs, _rows(run), spec.frame_shape, spec.frame_dtype)

    def size(self, run: RunConfig) -> str:
        return f"replay.buffer_size={run.replay.buffer_size}"

    def arrays(self, run: RunConfig, spec: EnvSpec, device: torch.device | None) -> Layout:
        frames = None
        if device is not None or run.shares_replay:  # the learner holds the frames, and receives the rows of actors
            size = run.total_envs * math.prod(spec.frame_shape) * spec.frame_dtype.itemsize
            frames = min(_rows(run), max(MIN_STAGING_ROWS, STAGING_BYTES // size))
        return ring_layout(run.total_envs, _rows(run), spec.frame_shape, spec.frame_dtype, num_frames=frames)

    def buffer(self, run: RunConfig, spec: EnvSpec, device: torch.device | None) -> Buffer:
        host, stack = _host_storage(self.arrays(run, spec, device), run), run.wrappers.stack
        storage = DeviceStorage(host, stack, self.n_step, device, copies=run.shares_replay)
        sampler = typed(run.replay, Replay).make(storage, run.seed)
        return ReplayBuffer(storage, sampler, self.gamma, bool(run.execution.compile))

    def least_start(self, run: RunConfig) -> int:
        """Agent steps after which every environment has stored a stack and an n-step window."""
        return run.total_envs * (run.wrappers.stack + self.n_step + 2)

    def check(self, run: RunConfig) -> None:
        super().check(run)
        capacity = run.replay.buffer_size
        for key, value in (("batch_size", self.batch_size), ("learning_starts", self.learning_starts)):
            if value > capacity:
                raise ConfigError(f"algo.{key}={value}: must be at most replay.buffer_size={capacity}.")
        needed = self.least_start(run)
        of = f"for {run.total_envs} environments, {run.wrappers.stack} frames and {self.n_step} steps."
        if capacity < 2 * needed:
            raise ConfigError(f"replay.buffer_size={capacity}: must be at least {2 * needed} {of}")
        if self.learning_starts < needed:
            raise ConfigError(f"algo.learning_starts={self.learning_starts}: must be at least {needed} {of}")


@dataclass(frozen=True)
class FromStream(Algorithm):
    """Learns from each piece of a few agent steps once, the oldest first."""

    n_step: ClassVar[int] = 1  # agent steps of a piece
    queue_batches: ClassVar[int] = 0  # batches that may wait beside the batch that is learnt from

    def layout(self, run: RunConfig, spec: EnvSpec) -> Layout:
        return _ordered_layout(run, spec, self._max_waiting(run) + run.total_envs * self.n_step)

    def size(self, run: RunConfig) -> str:
        return f"algo.batch_size={self.batch_size}" if self.batch_size > run.total_envs else f"num_envs={run.num_envs}"

    def buffer(self, run: RunConfig, spec: EnvSpec, device: torch.device | None) -> Buffer:
        host = _host_storage(self.layout(run, spec), run)
        storage = DeviceStorage(host, run.wrappers.stack, self.n_step, device)
        return TransitionQueue(storage, self.gamma, self._max_waiting(run))

    def _max_waiting(self, run: RunConfig) -> int:
        """Transitions that may wait for the learner, a batch of them to be taken next."""
        return self.batch_size * (1 + self.queue_batches) + 2 * run.total_envs


@dataclass(frozen=True)
class FromRollouts(Algorithm):
    """Base of algorithms that learn from ``num_steps`` steps of every environment, then discard them."""

    supports_cuda_graph = True
    epochs: ClassVar[int] = 1  # passes over each rollout

    num_steps: int = option("steps of each environment in a rollout", ge=1)

    @property
    def return_lambda(self) -> float:
        """The lambda of the returns: of GAE for a policy, of Q(lambda) for action values."""
        raise NotImplementedError

    def samples_per_step(self, run: RunConfig) -> float | None:
        return self.epochs

    def updates_per_step(self, run: RunConfig) -> float | None:
        return self.updates_per_rollout(run) / (run.total_envs * self.num_steps)

    def updates_per_rollout(self, run: RunConfig) -> int:
        """Updates of a rollout without final frames."""
        return self.epochs * -(-run.total_envs * self.num_steps // self.batch_size)

    def layout(self, run: RunConfig, spec: EnvSpec) -> Layout:
        return _ordered_layout(run, spec, 2 * run.num_envs * (self.num_steps + 1))  # the most rows ahead

    def size(self, run: RunConfig) -> str:
        return f"num_envs={run.num_envs}"

    def buffer(self, run: RunConfig, spec: EnvSpec, device: torch.device | None) -> Buffer:
        storage = DeviceStorage(_host_storage(self.layout(run, spec), run), run.wrappers.stack, device=device)
        return RolloutBuffer(
            storage, self.num_steps, self.epochs, self.gamma, self.return_lambda, run.seed, bool(run.execution.compile)
        )

    def check(self, run: RunConfig) -> None:
        super().check(run)
        parallelism, rollout = run.parallelism, run.total_envs * self.num_steps
        if parallelism.processes and parallelism.transport == "queue":
            raise ConfigError(
                f"parallelism.transport=queue: carries single transitions, and algo={self.name} learns from whole "
                f"rollouts; use parallelism.transport=shared_memory."
            )
        if self.batch_size > rollout:
            raise ConfigError(
                f"algo.batch_size={self.batch_size}: must be at most {rollout}, algo.num_steps of all environments."
            )


def _rows(run: RunConfig) -> int:
    """Rows of each environment in a replay."""
    return -(-run.replay.buffer_size // run.total_envs)


def _host_storage(layout: Layout, run: RunConfig) -> HostStorage | SharedStorage:
    return SharedStorage(layout, run.parallelism.num_actors) if run.shares_replay else HostStorage(layout)


def _ordered_layout(run: RunConfig, spec: EnvSpec, waiting: int) -> Layout:
    """Rings with room for ``waiting`` transitions with columns of the policy; with videos for whole games."""
    # One actor alone may have brought all that waits, and every other of its rows may be a final frame.
    rows = 2 * -(-waiting // run.num_envs) + run.wrappers.stack + SPARE_ROWS
    if run.tracking.video_every:
        rows = max(rows, FILMED_ROWS)
    return ring_layout(run.total_envs, rows, spec.frame_shape, spec.frame_dtype, acting=True)
