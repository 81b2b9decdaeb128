"""Ring buffers of transitions, one per environment; each frame is stored once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from dqnspeed.buffers.storage import HostStorage, Layout, SharedStorage
from dqnspeed.execution.arrays import Array, host

LOCK_TIMEOUT_S = 0.05  # a writer locks a cursor for microseconds, unless it is killed
MAX_AGE = 255  # ages saturate here; larger than any frame stack

# Columns of the behaviour policy, for on-policy algorithms.
POLICY_COLUMNS: dict[str, np.dtype] = {
    "log_probs": np.dtype(np.float32),  # log-probability of the action
    "values": np.dtype(np.float32),  # value of the state by the critic, or the largest Q-value
    "versions": np.dtype(np.int64),  # update count of the weights that chose the action
}


@dataclass(slots=True)
class Rows:
    """One step of N environments: frames, actions and their results.

    Each column is a NumPy array or a tensor. Frames on the device of a buffer are stored without a way through the
    host. Other columns are kept on the host: a tensor on a CPU shares its memory, a tensor on a GPU is copied, which
    waits for the GPU.
    """

    frames: Array  # (N, C, ...) newest frames, before the action
    actions: Array  # (N,) int
    rewards: Array  # (N,) float32
    terminated: Array  # (N,) bool
    truncated: Array  # (N,) bool
    first: Array  # (N,) bool, the frame starts an episode
    transition: Array  # (N,) bool; False for the final frame of an episode
    acting: Mapping[str, Array] = field(default_factory=dict)  # (N,) each, of POLICY_COLUMNS

    def select(self, i: int) -> Rows:
        """Row of environment ``i`` only."""
        return self.map(lambda column: column[i : i + 1])

    def on_host(self) -> Rows:
        """Copy with NumPy arrays, for another process."""
        return self.map(host)

    def map(self, function: Callable[..., Any], *others: Rows) -> Rows:
        """Copy whose columns are ``function`` of this column and of the columns of ``others``."""
        rows = (self, *others)
        names = [f.name for f in fields(self) if f.name != "acting"]
        acting = {name: function(*(one.acting[name] for one in rows)) for name in self.acting}
        return Rows(**{name: function(*(getattr(one, name) for one in rows)) for name in names}, acting=acting)


def ring_layout(
    num_envs: int,
    num_rows: int,
    frame_shape: tuple[int, ...],
    frame_dtype: np.dtype,
    acting: bool = False,
    num_frames: int | None = None,
) -> Layout:
    """Arrays of a :class:`RingBuffer` with ``num_rows`` rows for each environment.

    Args:
        acting: with the columns of ``POLICY_COLUMNS``.
        num_frames: rows whose frames are stored here, by default all; the learner keeps the others elsewhere.
    """
    columns: dict[str, tuple[tuple[int, ...], np.dtype]] = {
        "frames": ((num_envs, num_frames or num_rows, *frame_shape), np.dtype(frame_dtype)),
        "actions": ((num_envs, num_rows), np.dtype(np.int32)),
        "rewards": ((num_envs, num_rows), np.dtype(np.float32)),
        "terminated": ((num_envs, num_rows), np.dtype(bool)),
        "truncated": ((num_envs, num_rows), np.dtype(bool)),
        "age": ((num_envs, num_rows), np.dtype(np.uint8)),  # frames since the start of the episode, up to MAX_AGE
        "transition": ((num_envs, num_rows), np.dtype(bool)),
    }
    if acting:
        columns |= {name: ((num_envs, num_rows), dtype) for name, dtype in POLICY_COLUMNS.items()}
    return {**columns, "written": ((num_envs,), np.dtype(np.int64))}


class RingBuffer:
    """One ring of rows per environment, over the arrays of a host storage.

    Rows of an environment are numbered from 0. The final frame of an episode has a row of its own, so that a truncated
    episode bootstraps from its last observation.

    Args:
        host: arrays of :func:`ring_layout`; its locks guard the cursors.

    Attributes:
        columns: arrays ``(num_envs, num_rows, ...)``.
        flat: views ``(num_envs * num_rows, ...)`` of the columns, for :meth:`index`.
        written: rows written to each environment, ``(num_envs,) int64``, as the writers count.
    """

    def __init__(self, host: HostStorage | SharedStorage):
        arrays = host.arrays
        self.host = host
        self.written = arrays["written"]
        self.columns = {name: arrays[name] for name in arrays if name != "written"}
        self.flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in self.columns.items()}
        self.num_envs: int = len(arrays["actions"])
        self.num_rows: int = arrays["actions"].shape[1]
        self._locks = host.locks
        self._known = np.array(self.written)  # cursors at the last read

    def append(self, rows: Rows, env_index: int = 0) -> None:
        """Write one step of the environments ``env_index .. env_index + N - 1``, which share a cursor."""
        envs = slice(env_index, env_index + len(rows.actions))
        written = int(self.written[env_index])
        self._write_frames(rows.frames, envs, written)
        for name, column in self.columns.items():
            if name == "age":
                column[envs, written % self.num_rows] = self._ages(envs, written, host(rows.first))
            elif name != "frames":
                value: Any = rows.acting.get(name, 0) if name in POLICY_COLUMNS else getattr(rows, name)
                column[envs, written % self.num_rows] = host(value)
        with self._lock_of(env_index):
            self.written[envs] += 1

    def rows_written(self, env_index: int) -> int:
        """Number of rows ever written for an environment."""
        return int(self.cursors()[env_index])

    def cursors(self) -> np.ndarray:
        """Rows written to each environment, ``(num_envs,) int64``; of a killed writer the last known numbers."""
        if not self._locks:
            return np.array(self.written)
        for lock, known, written in zip(self._locks, *map(self._by_writer, (self._known, self.written)), strict=True):
            if lock.acquire(timeout=LOCK_TIMEOUT_S):
                known[:] = written
                lock.release()
        return np.array(self._known)

    def writer_gone(self, env_index: int) -> None:
        """Free the lock and repair the cursors of a dead process, which wrote ``env_index`` and others."""
        if self._locks:
            lock = self._lock_of(env_index)
            lock.acquire(block=False)
            own = self._by_writer(self.written)[self._writer_of(env_index)]
            own[:] = own.min()  # all have one cursor, and the writer may have died between two of them
            lock.release()

    def index(self, env: Any, row: Any) -> Any:
        """Index of rows, by environment and number, in all flat columns but shorter columns of frames."""
        return env * self.num_rows + row % self.num_rows

    def close(self) -> None:
        self.written = np.empty(0)
        self.columns, self.flat = {}, {}
        self.host.close()

    def _write_frames(self, frames: Array, envs: slice, row: int) -> None:
        """Write the frames ``(N, C, ...)`` of the row number ``row`` of ``envs``."""
        column = self.columns["frames"]
        column[envs, row % column.shape[1]] = host(frames)

    def _by_writer(self, by_env: np.ndarray) -> np.ndarray:
        return by_env.reshape(len(self._locks), -1)

    def _writer_of(self, env_index: int) -> int:
        return env_index * len(self._locks) // self.num_envs

    def _lock_of(self, env_index: int) -> Any:
        return self._locks[self._writer_of(env_index)] if self._locks else contextlib.nullcontext()

    def _ages(self, envs: slice, written: int, first: np.ndarray) -> Any:
        if not written:  # a resumed game may start in its middle, without earlier rows for a stack
            return np.zeros(len(first), np.uint8)
        before = self.columns["age"][envs, (written - 1) % self.num_rows]
        return np.where(first, np.uint8(0), before + (before < MAX_AGE))


def row_ranges(begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Environment and number of each of the rows ``begin[env] .. end[env] - 1`` of all environments."""
    counts = np.maximum(end - begin, 0)
    if len(counts) and (counts == counts[0]).all():  # the common case, vectorized
        return np.arange(len(counts)).repeat(counts[0]), (begin[:, None] + np.arange(counts[0])).reshape(-1)
    env = np.repeat(np.arange(len(counts)), counts)
    return env, np.arange(len(env)) + (begin - counts.cumsum() + counts)[env]
