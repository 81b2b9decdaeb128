"""Memories: what is remembered of experience, and how it is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch

from dqnspeed.config.options import given
from dqnspeed.config.schema import CONCURRENT_MARGIN, RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.memory.buffers import Layout, LocalBuffers, SharedBuffers, check_memory
from dqnspeed.memory.n_step import Batch
from dqnspeed.memory.rings import Rings, Rows, ring_layout
from dqnspeed.memory.rollout import RolloutBatch, Rollouts, lambda_returns
from dqnspeed.memory.stream import Stream
from dqnspeed.memory.uniform import UniformReplay

LONG_GAME = 8000  # rows of the rings of a filmed on-policy run, so that videos show whole games


class Memory(Protocol):
    """What the training loop, actors and videos ask of every memory."""

    buffers: LocalBuffers | SharedBuffers

    def discard_pending(self) -> None:
        """Forget what has come in so far, where it must not be learnt from: learning has not begun."""

    def append(self, rows: Rows, lane: int = 0) -> None:
        """Write one step of ``N`` environments to the lanes ``lane .. lane + N - 1``."""

    def sample(self, batch_size: int) -> Any:
        """The next batch for the learner."""

    def blank(self, batch_size: int) -> Any:
        """A batch of the shapes and dtypes of those that :meth:`sample` gives; its values mean nothing."""

    def recent_frames(self, count: int) -> np.ndarray:
        """Up to ``count`` frames ``(K, C, ...)`` spread evenly over what is stored."""

    def rows(self, lane: int) -> int:
        """Rows written to ``lane`` so far."""

    def frames_of(self, lane: int, begin: int, end: int) -> np.ndarray:
        """Frames ``(K, C, ...)`` of the rows ``begin .. end - 1``, as far as they are held."""

    def cut(self, lane: int, count: int) -> None:
        """Close the episodes of these lanes: nobody will go on with them."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...


def run_layout(run: RunConfig, spec: EnvSpec) -> Layout:
    """The arrays a run's memory needs: a ring for each environment of all actors."""
    if run.has_replay:
        rows = -(-run.replay.capacity // run.num_lanes)
    else:
        # One actor alone may have brought all that waits, and every other of its rows may be a final frame.
        lanes, rollout = run.num_lanes, run.algo.rollout_steps
        waiting = _ahead(run) + lanes * (run.algo.n_step or 1) if rollout is None else 2 * lanes * (rollout + 1)
        rows = 2 * -(-waiting // run.num_envs) + run.wrappers.stack + CONCURRENT_MARGIN
    if not run.has_replay and run.tracking.video_every:
        rows = max(rows, LONG_GAME)
    return ring_layout(run.num_lanes, rows, spec.frame_shape, spec.frame_dtype, acting=not run.has_replay)


def check_fits(run: RunConfig, spec: EnvSpec) -> None:
    """Raise :class:`ConfigError` where the memory asked for does not fit into what is free."""
    layout, shared = run_layout(run, spec), run.shares_replay
    if not run.has_replay and run.algo.rollout_steps is None and run.algo.batch_size > run.num_lanes:
        check_memory(layout, "algo.batch_size", run.algo.batch_size, "transitions", shared)
    elif not run.has_replay:
        check_memory(layout, "num_envs", run.num_envs, "environments", shared)
    else:
        check_memory(layout, "replay.capacity", run.replay.capacity, "transitions", shared)


def make_memory(
    run: RunConfig, spec: EnvSpec, lock: Any = None, device: torch.device | None = None
) -> UniformReplay | Stream | Rollouts:
    """The memory that ``algo`` learns from on ``device``; in shared memory where actor processes write into it."""
    check_fits(run, spec)
    layout, algo, stack = run_layout(run, spec), run.algo, run.wrappers.stack
    buffers = SharedBuffers(layout) if run.shares_replay else LocalBuffers(layout)
    if algo.rollout_steps is not None:
        return Rollouts(
            buffers, stack, algo.rollout_steps, given(algo.epochs), algo.gamma, given(algo.lam), run.seed, lock, device
        )
    if not run.has_replay:
        return Stream(buffers, stack, algo.n_step or 1, algo.gamma, _ahead(run), lock)
    return UniformReplay(buffers, stack, given(algo.n_step), algo.gamma, run.seed, run.shares_replay, lock)


def _ahead(run: RunConfig) -> int:
    """Transitions that may wait for an on-policy learner, a batch of them to be taken next."""
    return run.algo.batch_size * (1 + (run.algo.queue_batches or 0)) + 2 * run.num_lanes


__all__ = [
    "Batch",
    "LocalBuffers",
    "Memory",
    "Rings",
    "RolloutBatch",
    "Rollouts",
    "Rows",
    "SharedBuffers",
    "Stream",
    "UniformReplay",
    "check_fits",
    "lambda_returns",
    "make_memory",
    "ring_layout",
]
