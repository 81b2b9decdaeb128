"""Replay: what is remembered and how it is drawn."""

from __future__ import annotations

from typing import Any

from dqnspeed.config import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.replay.buffers import Layout, LocalBuffers, SharedBuffers, check_memory
from dqnspeed.replay.uniform import Batch, Rows, UniformReplay, replay_layout


def run_layout(run: RunConfig, spec: EnvSpec) -> Layout:
    """The arrays a run's replay needs: its capacity shared out over the environments of all actors."""
    rows = -(-run.replay.capacity // run.num_lanes)
    return replay_layout(run.num_lanes, rows, spec.frame_shape, spec.frame_dtype)


def check_fits(run: RunConfig, spec: EnvSpec) -> None:
    """Raise :class:`ConfigError` where the replay asked for does not fit into the memory that is free."""
    check_memory(run_layout(run, spec), run.replay.capacity, run.shares_replay)


def make_replay(run: RunConfig, spec: EnvSpec, lock: Any = None) -> UniformReplay:
    """A replay for ``run``; in shared memory where actor processes write into it."""
    check_fits(run, spec)
    layout = run_layout(run, spec)
    buffers = SharedBuffers(layout) if run.shares_replay else LocalBuffers(layout)
    return UniformReplay(
        buffers, spec.stack, run.algo.n_step, run.algo.gamma, run.seed, concurrent=run.shares_replay, lock=lock
    )


__all__ = [
    "Batch",
    "LocalBuffers",
    "Rows",
    "SharedBuffers",
    "UniformReplay",
    "check_fits",
    "make_replay",
    "replay_layout",
]
