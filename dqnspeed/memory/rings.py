"""Storage of experience: a ring of steps for each environment, with every frame stored once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from dqnspeed.config.schema import CONCURRENT_MARGIN
from dqnspeed.envs import ActorError
from dqnspeed.memory.buffers import Layout, LocalBuffers, SharedBuffers

LOCK_TIMEOUT_S = 10.0


@dataclass(slots=True)
class Rows:
    """One step of some environments: a frame and the result of the action chosen on it; arrays lead with N."""

    frames: np.ndarray  # (N, C, ...) the frame that was acted on
    actions: np.ndarray  # (N,) int
    rewards: np.ndarray  # (N,) float32
    terminated: np.ndarray  # (N,) bool
    truncated: np.ndarray  # (N,) bool
    first: np.ndarray  # (N,) bool, the frame starts an episode
    transition: np.ndarray  # (N,) bool, False for an episode's last frame, whose action was ignored
    acting: Mapping[str, np.ndarray] = field(default_factory=dict)  # (N,) each, columns of ACTING

    def one(self, i: int) -> Rows:
        """The row of environment ``i`` alone."""
        own = {f.name: getattr(self, f.name)[i : i + 1] for f in fields(self) if f.name != "acting"}
        return Rows(**own, acting={name: column[i : i + 1] for name, column in self.acting.items()})


# Columns about the policy that acted, for on-policy learners.
ACTING: dict[str, np.dtype] = {
    "log_probs": np.dtype(np.float32),  # of the action taken
    "values": np.dtype(np.float32),  # of the state: the critic's, or the largest action value
    "versions": np.dtype(np.int64),  # updates done to the weights that acted
}


def ring_layout(
    lanes: int, rows: int, frame_shape: tuple[int, ...], frame_dtype: np.dtype, acting: bool = False
) -> Layout:
    """Arrays of ``lanes`` rings of ``rows`` steps, one ring for each environment; with the columns of ``ACTING``."""
    columns: dict[str, tuple[tuple[int, ...], np.dtype]] = {
        "frames": ((lanes, rows, *frame_shape), np.dtype(frame_dtype)),
        "actions": ((lanes, rows), np.dtype(np.int32)),
        "rewards": ((lanes, rows), np.dtype(np.float32)),
        "terminated": ((lanes, rows), np.dtype(bool)),
        "truncated": ((lanes, rows), np.dtype(bool)),
        "first": ((lanes, rows), np.dtype(bool)),
        "transition": ((lanes, rows), np.dtype(bool)),
    }
    if acting:
        columns |= {name: ((lanes, rows), dtype) for name, dtype in ACTING.items()}
    return {**columns, "written": ((lanes,), np.dtype(np.int64))}


class Rings:
    """A ring of steps for each environment ("lane").

    A frame is stored once; a stack is rebuilt from the rows before it and repeats the first frame at an episode's
    start. The final frame of an episode has a row of its own, so that a truncated episode bootstraps from its own
    last observation.

    Args:
        buffers: arrays of :func:`ring_layout`, local or shared.
        concurrent: another process writes, so the oldest rows are not read, and ``lock`` guards the cursors.
    """

    def __init__(self, buffers: LocalBuffers | SharedBuffers, stack: int, concurrent: bool = False, lock: Any = None):
        arrays = buffers.arrays
        self.buffers = buffers
        self.stack = stack
        self._frames, self._written = arrays["frames"], arrays["written"]
        self._columns = {name: arrays[name] for name in arrays if name != "written"}
        self._flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in self._columns.items()}
        self._rows: int = self._frames.shape[1]
        self._margin = CONCURRENT_MARGIN if concurrent else 0
        self._lock = lock
        self._oldest = np.zeros_like(self._written)  # first row of each lane that was restored

    def append(self, rows: Rows, lane: int = 0) -> None:
        """Write one step of ``N`` environments to the lanes ``lane .. lane + N - 1``, which share a cursor."""
        lanes = slice(lane, lane + len(rows.actions))
        written = int(self._written[lane])
        at = written % self._rows
        for name, column in self._columns.items():
            column[lanes, at] = rows.acting.get(name, 0) if name in ACTING else getattr(rows, name)
        if not written:  # a resumed game may start in its middle, without earlier rows for a stack
            self._columns["first"][lanes, at] = True
        with self._locked():
            self._written[lanes] += 1

    def __len__(self) -> int:
        """Rows stored now, final frames of episodes included."""
        return int(np.minimum(self.cursors(), self._rows).sum())

    def recent_frames(self, count: int) -> np.ndarray:
        """Up to ``count`` frames ``(K, C, ...)`` spread evenly over what is stored."""
        written = np.minimum(self.cursors(), self._rows)
        rows = np.concatenate([lane * self._rows + np.arange(held) for lane, held in enumerate(written)])
        chosen = rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64)]
        frames: np.ndarray = self._flat["frames"][chosen]
        return frames

    def rows(self, lane: int) -> int:
        """Rows written to ``lane`` since it was made, overwritten ones included."""
        return int(self.cursors()[lane])

    def rows_allowed(self) -> np.ndarray:
        """No lane needs to wait for the others."""
        return np.full(len(self._written), np.inf)

    def frames_of(self, lane: int, begin: int, end: int) -> np.ndarray:
        """The frames ``(K, C, ...)`` of the rows ``begin .. end - 1`` of ``lane``, as far as they are still stored."""
        oldest = max(int(self._oldest[lane]), int(self.cursors()[lane]) - self._rows + self._margin)
        frames: np.ndarray = self._flat["frames"][self._index(lane, np.arange(max(begin, oldest), end))]
        return frames

    def cut(self, lane: int, count: int) -> list[tuple[int, int]]:
        """Close the episodes that lanes ``lane .. lane + count - 1`` are in the middle of, which will not be continued.

        The newest row of each lane becomes its episode's last frame, and the episode counts as truncated there.

        Returns:
            Lanes and rows that were transitions and are none any more.
        """
        unmade = list[tuple[int, int]]()
        for i in range(lane, lane + count):
            written = int(self._written[i])
            if not written:
                continue
            last, before = (int(self._index(np.int64(i), np.int64(written - k))) for k in (1, 2))
            if self._flat["transition"][last]:
                unmade.append((i, written - 1))
            for name in ("transition", "terminated", "truncated"):
                self._flat[name][last] = False
            ended = self._flat["terminated"][before] or not self._flat["transition"][before]
            if written > 1 and not self._flat["first"][last] and not ended:
                self._flat["truncated"][before] = True
        return unmade

    def state_dict(self) -> dict[str, Any]:
        """All stored rows."""
        held = min(int(self._written.max(initial=0)), self._rows)
        columns = {name: column[:, :held] for name, column in self._columns.items()}
        return {"columns": columns, "written": self._written.copy(), "oldest": self._oldest.copy(), "rows": self._rows}

    def _unlearnt(self, begin: np.ndarray) -> dict[str, Any]:
        """The same in the shortest rings that suffice to continue from the rows ``begin`` of each lane."""
        written = self._written.copy()
        needed = written - begin + self.stack + 1  # with the frames of a stack, and the rows that :meth:`cut` reads
        rows = min(int(needed.max(initial=1)), self._rows)
        kept = [np.arange(max(0, end - rows), end) for end in written]
        columns = {}
        for name, column in self._columns.items():
            columns[name] = np.zeros((len(column), rows, *column.shape[2:]), column.dtype)
            for lane, lasting in enumerate(kept):
                columns[name][lane, lasting % rows] = column[lane, lasting % self._rows]
        return {"columns": columns, "written": written, "rows": rows}

    def resume_empty(self, updates: int) -> None:
        """Nothing here depends on how often the learner has learnt."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a :meth:`state_dict`, also of longer or shorter rings."""
        self._written[:] = state["written"]
        before = state.get("rows", self._rows)
        self._oldest[:] = np.maximum(state.get("oldest", 0), self._written - before)
        for name, stored in state["columns"].items():
            if before == self._rows:
                self._columns[name][:, : stored.shape[1]] = stored
                continue
            for lane, written in enumerate(self._written):
                rows = np.arange(max(0, written - min(before, self._rows)), written)
                self._columns[name][lane, rows % self._rows] = stored[lane, rows % before]

    def close(self) -> None:
        self._frames = self._written = np.empty(0)
        self._columns, self._flat = {}, {}
        self.buffers.close()

    def cursors(self) -> np.ndarray:
        with self._locked():
            return np.array(self._written)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock; raise :class:`ActorError` if a process died while holding it."""
        if self._lock is None:
            yield
        elif self._lock.acquire(timeout=LOCK_TIMEOUT_S):
            try:
                yield
            finally:
                self._lock.release()
        else:
            raise ActorError(f"the replay has been locked for {LOCK_TIMEOUT_S:g} s by a process that died or hangs.")

    def _transitions(self, begin: np.ndarray, end: np.ndarray) -> int:
        """Transitions in the rows ``begin[lane] .. end[lane] - 1`` of all lanes."""
        lanes = enumerate(zip(begin, end, strict=True))
        return sum(int(self._flat["transition"][self._index(i, np.arange(*rows))].sum()) for i, rows in lanes)

    def _stacks(self, lane: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Stacks ``(B, stack * C, ...)`` that end with ``row``, and the oldest rows in them."""
        index = np.empty((len(row), self.stack), np.int64)
        index[:, -1] = at = self._index(lane, row)
        for i in range(self.stack - 2, -1, -1):
            row = row - ~self._flat["first"][at]
            index[:, i] = at = self._index(lane, row)
        stacks = np.take(self._flat["frames"], index.ravel(), axis=0)
        shape = self._frames.shape[2:]
        return stacks.reshape(len(row), self.stack * shape[0], *shape[1:]), row

    def _index(self, lane: Any, row: Any) -> Any:
        """Index of the absolute ``row`` of ``lane`` in the flat columns."""
        return lane * self._rows + row % self._rows
