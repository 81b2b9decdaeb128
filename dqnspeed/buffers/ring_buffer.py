"""Storage of experience: a ring of steps for each environment, with every frame stored once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from dqnspeed.buffers.storage import Layout, LocalBuffers, SharedBuffers
from dqnspeed.envs import AnyArray
from dqnspeed.execution.arrays import host

LOCK_TIMEOUT_S = 0.05  # much longer than a cursor is locked, unless its writer was killed meanwhile
OLDEST = 255  # age of a frame, and of all older ones of its episode


@dataclass(slots=True)
class Rows:
    """One step of some environments: a frame and the result of the action chosen on it; arrays lead with N.

    Each may be NumPy's or a tensor. Frames on the device of a memory are stored there without a way through the host.
    All else is kept on the host: a tensor on the CPU shares its memory, one on a device is copied, which waits for it.
    """

    frames: AnyArray  # (N, C, ...) the frame that was acted on
    actions: AnyArray  # (N,) int
    rewards: AnyArray  # (N,) float32
    terminated: AnyArray  # (N,) bool
    truncated: AnyArray  # (N,) bool
    first: AnyArray  # (N,) bool, the frame starts an episode
    transition: AnyArray  # (N,) bool, False for an episode's last frame, whose action was ignored
    acting: Mapping[str, AnyArray] = field(default_factory=dict)  # (N,) each, columns of ACTING

    def one(self, i: int) -> Rows:
        """The row of environment ``i`` alone."""
        return self._each(lambda column: column[i : i + 1])

    def on_host(self) -> Rows:
        """The same as NumPy's, for another process."""
        return self._each(host)

    def _each(self, function: Callable[[AnyArray], AnyArray]) -> Rows:
        columns = {f.name: function(getattr(self, f.name)) for f in fields(self) if f.name != "acting"}
        return Rows(**columns, acting={name: function(column) for name, column in self.acting.items()})


# Columns about the policy that acted, for on-policy learners.
ACTING: dict[str, np.dtype] = {
    "log_probs": np.dtype(np.float32),  # of the action taken
    "values": np.dtype(np.float32),  # of the state: the critic's, or the largest action value
    "versions": np.dtype(np.int64),  # updates done to the weights that acted
}


def ring_layout(
    lanes: int,
    rows: int,
    frame_shape: tuple[int, ...],
    frame_dtype: np.dtype,
    acting: bool = False,
    frames: int | None = None,
) -> Layout:
    """Arrays of ``lanes`` rings of ``rows`` steps, one ring for each environment; with the columns of ``ACTING``.

    Args:
        frames: rows whose frames they hold, by default of all; the others' are where the learner keeps them.
    """
    columns: dict[str, tuple[tuple[int, ...], np.dtype]] = {
        "frames": ((lanes, frames or rows, *frame_shape), np.dtype(frame_dtype)),
        "actions": ((lanes, rows), np.dtype(np.int32)),
        "rewards": ((lanes, rows), np.dtype(np.float32)),
        "terminated": ((lanes, rows), np.dtype(bool)),
        "truncated": ((lanes, rows), np.dtype(bool)),
        "age": ((lanes, rows), np.dtype(np.uint8)),  # frames of its episode that came before, OLDEST if more
        "transition": ((lanes, rows), np.dtype(bool)),
    }
    if acting:
        columns |= {name: ((lanes, rows), dtype) for name, dtype in ACTING.items()}
    return {**columns, "written": ((lanes,), np.dtype(np.int64))}


class Rings:
    """A ring of steps for each environment ("lane"), as those write it that act.

    The final frame of an episode has a row of its own, so that a truncated episode bootstraps from its own last
    observation.

    Args:
        buffers: arrays of :func:`ring_layout`, local or shared; their locks guard the cursors.
    """

    def __init__(self, buffers: LocalBuffers | SharedBuffers):
        arrays = buffers.arrays
        self.buffers = buffers
        self._written = arrays["written"]
        self._columns = {name: arrays[name] for name in arrays if name != "written"}
        self._flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in self._columns.items()}
        self._rows: int = arrays["actions"].shape[1]
        self._locks = buffers.locks
        self._known = np.array(self._written)  # cursors as they were last seen

    def append(self, rows: Rows, lane: int = 0) -> None:
        """Write one step of ``N`` environments to the lanes ``lane .. lane + N - 1``, which share a cursor."""
        lanes = slice(lane, lane + len(rows.actions))
        written = int(self._written[lane])
        self._write_frames(rows.frames, lanes, written)
        for name, column in self._columns.items():
            if name == "age":
                column[lanes, written % self._rows] = self._ages(lanes, written, host(rows.first))
            elif name != "frames":
                value = rows.acting.get(name, 0) if name in ACTING else getattr(rows, name)
                column[lanes, written % self._rows] = host(value)
        with self._lock_of(lane):
            self._written[lanes] += 1

    def rows(self, lane: int) -> int:
        """Rows written to ``lane`` since it was made, overwritten ones included."""
        return int(self.cursors()[lane])

    def own_rows(self, lane: int) -> int:
        """The same for the process that writes ``lane``, which takes no other's lock."""
        return int(self._written[lane])

    def close(self) -> None:
        self._written = np.empty(0)
        self._columns, self._flat = {}, {}
        self.buffers.close()

    def cursors(self) -> np.ndarray:
        """Rows written to each lane, ``(lanes,) int64``; of a writer that was killed in the act, those known before."""
        if not self._locks:
            return np.array(self._written)
        for lock, known, written in zip(self._locks, *map(self._by_writer, (self._known, self._written)), strict=True):
            if lock.acquire(timeout=LOCK_TIMEOUT_S):
                known[:] = written
                lock.release()
        return np.array(self._known)

    def _write_frames(self, frames: AnyArray, lanes: slice, row: int) -> None:
        """Write the frames ``(N, C, ...)`` of the row ``row`` of ``lanes``."""
        column = self._columns["frames"]
        column[lanes, row % column.shape[1]] = host(frames)

    def _by_writer(self, lanes: np.ndarray) -> np.ndarray:
        return lanes.reshape(len(self._locks), -1)

    def _lock_of(self, lane: int) -> Any:
        return self._locks[lane * len(self._locks) // len(self._written)] if self._locks else contextlib.nullcontext()

    def _ages(self, lanes: slice, written: int, first: np.ndarray) -> np.ndarray:
        if not written:  # a resumed game may start in its middle, without earlier rows for a stack
            return np.zeros(len(first), np.uint8)
        before = self._columns["age"][lanes, (written - 1) % self._rows]
        ages: np.ndarray = np.where(first, np.uint8(0), before + (before < OLDEST))
        return ages

    def _index(self, lane: Any, row: Any) -> Any:
        """Index of the absolute ``row`` of ``lane`` in the flat columns, but those of frames."""
        return lane * self._rows + row % self._rows


def each(begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lane and number of each of the rows ``begin[lane] .. end[lane] - 1`` of all lanes."""
    counts = np.maximum(end - begin, 0)
    if len(counts) and (counts == counts[0]).all():  # usual, and faster
        return np.arange(len(counts)).repeat(counts[0]), (begin[:, None] + np.arange(counts[0])).reshape(-1)
    lane = np.repeat(np.arange(len(counts)), counts)
    return lane, np.arange(len(lane)) + (begin - counts.cumsum() + counts)[lane]
