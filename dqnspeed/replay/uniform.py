"""Uniform replay that stores every frame once and builds stacks and n-step returns on sampling."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dqnspeed.config import CONCURRENT_MARGIN
from dqnspeed.envs import ActorError
from dqnspeed.replay.buffers import Layout, LocalBuffers, SharedBuffers

LOCK_TIMEOUT_S = 10.0


@dataclass(slots=True)
class Rows:
    """One step of some environments: a frame and what came of the action chosen on it; arrays lead with N."""

    frames: np.ndarray  # (N, C, ...) the frame that was acted on
    actions: np.ndarray  # (N,) int
    rewards: np.ndarray  # (N,) float32
    terminated: np.ndarray  # (N,) bool
    truncated: np.ndarray  # (N,) bool
    first: np.ndarray  # (N,) bool, the frame opens an episode
    transition: np.ndarray  # (N,) bool, False for an episode's last frame, whose action was ignored

    def one(self, i: int) -> Rows:
        """The row of environment ``i`` alone."""
        return Rows(**{f.name: getattr(self, f.name)[i : i + 1] for f in fields(self)})


@dataclass(slots=True)
class Batch:
    """B sampled transitions. ``discounts`` is gamma**m, or 0 where the episode terminated within the m steps."""

    observations: np.ndarray  # (B, stack * C, ...) of the frames' dtype
    actions: np.ndarray  # (B,) int64
    rewards: np.ndarray  # (B,) float32, discounted sum of up to n_step rewards
    next_observations: np.ndarray  # (B, stack * C, ...)
    discounts: np.ndarray  # (B,) float32


def replay_layout(lanes: int, rows: int, frame_shape: tuple[int, ...], frame_dtype: np.dtype) -> Layout:
    """Arrays of a replay: ``lanes`` rings of ``rows`` steps, one ring for each environment."""
    return {
        "frames": ((lanes, rows, *frame_shape), np.dtype(frame_dtype)),
        "actions": ((lanes, rows), np.dtype(np.int32)),
        "rewards": ((lanes, rows), np.dtype(np.float32)),
        "terminated": ((lanes, rows), np.dtype(bool)),
        "truncated": ((lanes, rows), np.dtype(bool)),
        "first": ((lanes, rows), np.dtype(bool)),
        "transition": ((lanes, rows), np.dtype(bool)),
        "written": ((lanes,), np.dtype(np.int64)),
    }


class UniformReplay:
    """A ring of steps for each environment ("lane"), sampled uniformly over all complete transitions.

    A frame is stored once; a stack is rebuilt from the rows before it and repeats the first frame at an
    episode's start. n-step windows stop at an episode's end and never reach into the next one. The final
    frame of an episode has a row of its own, so that a truncated episode bootstraps from what was really seen.

    Args:
        buffers: arrays of :func:`replay_layout`, local or shared.
        lock: guards the cursors when another process writes (``concurrent``); the oldest rows are then left
            alone and a batch that was overtaken by the writer is drawn again.
    """

    def __init__(
        self,
        buffers: LocalBuffers | SharedBuffers,
        stack: int,
        n_step: int,
        gamma: float,
        seed: int = 0,
        concurrent: bool = False,
        lock: Any = None,
    ):
        arrays = buffers.arrays
        self.buffers = buffers
        self.stack, self.n_step = stack, n_step
        self._frames, self._written = arrays["frames"], arrays["written"]
        self._columns = {name: arrays[name] for name in arrays if name != "written"}
        self._flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in self._columns.items()}
        self._rows: int = self._frames.shape[1]
        self._gammas = (gamma ** np.arange(n_step + 1)).astype(np.float32)
        self._rng = np.random.default_rng(seed)
        self._margin = CONCURRENT_MARGIN if concurrent else 0
        self._lock = lock

    def append(self, rows: Rows, lane: int = 0) -> None:
        """Write one step of ``N`` environments to the lanes ``lane .. lane + N - 1``, which share a cursor."""
        lanes = slice(lane, lane + len(rows.actions))
        written = int(self._written[lane])
        at = written % self._rows
        for name, column in self._columns.items():
            column[lanes, at] = getattr(rows, name)
        if not written:  # a resumed game may begin in its middle, and no row before this one belongs to a stack
            self._columns["first"][lanes, at] = True
        with self._locked():
            self._written[lanes] += 1

    def __len__(self) -> int:
        """Rows held now, final frames of episodes included."""
        return int(np.minimum(self._cursors(), self._rows).sum())

    def sample(self, batch_size: int) -> Batch:
        """Draw ``batch_size`` transitions with replacement, uniformly over those that are complete.

        Raises:
            LookupError: nothing can be drawn yet.
        """
        while True:
            lane, row = self._draw(batch_size)
            batch, oldest = self._gather(lane, row)
            if not self._margin or (oldest > self._cursors()[lane] - self._rows).all():
                return batch

    def recent_frames(self, count: int) -> np.ndarray:
        """Up to ``count`` frames ``(K, C, ...)`` spread evenly over what is stored."""
        written = np.minimum(self._cursors(), self._rows)
        rows = np.concatenate([lane * self._rows + np.arange(held) for lane, held in enumerate(written)])
        chosen = rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64)]
        return self._flat["frames"][chosen]

    def rows(self, lane: int) -> int:
        """Rows written to ``lane`` since it was made, those that were overwritten included."""
        return int(self._cursors()[lane])

    def frames_of(self, lane: int, begin: int, end: int) -> np.ndarray:
        """The frames ``(K, C, ...)`` of the rows ``begin .. end - 1`` of ``lane``, as far as they are still held."""
        oldest = max(0, int(self._cursors()[lane]) - self._rows + self._margin)
        return self._flat["frames"][self._index(lane, np.arange(max(begin, oldest), end))]

    def cut(self, lane: int, count: int) -> None:
        """Close the episodes that lanes ``lane .. lane + count - 1`` are in the middle of: nobody will go on with them.

        The newest row of each lane becomes its episode's last frame, and the episode counts as truncated there.
        """
        for i in range(lane, lane + count):
            written = int(self._written[i])
            if not written:
                continue
            last, before = (int(self._index(np.int64(i), np.int64(written - k))) for k in (1, 2))
            for name in ("transition", "terminated", "truncated"):
                self._flat[name][last] = False
            ended = self._flat["terminated"][before] or not self._flat["transition"][before]
            if written > 1 and not self._flat["first"][last] and not ended:
                self._flat["truncated"][before] = True

    def state_dict(self) -> dict[str, Any]:
        """What is stored, oldest rows included, and the state of the draw."""
        held = min(int(self._written.max(initial=0)), self._rows)
        columns = {name: column[:, :held] for name, column in self._columns.items()}
        return {"columns": columns, "written": self._written.copy(), "rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave; the rings must be as long as they were."""
        for name, stored in state["columns"].items():
            self._columns[name][:, : stored.shape[1]] = stored
        self._written[:] = state["written"]
        self._rng.bit_generator.state = state["rng"]

    def close(self) -> None:
        self._frames = self._written = np.empty(0)
        self._columns, self._flat = {}, {}
        self.buffers.close()

    def _cursors(self) -> np.ndarray:
        with self._locked():
            return self._written.copy()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the lock; an actor that died while holding it must not stop the learner for ever."""
        if self._lock is None:
            yield
        elif self._lock.acquire(timeout=LOCK_TIMEOUT_S):
            try:
                yield
            finally:
                self._lock.release()
        else:
            raise ActorError(f"the replay has been locked for {LOCK_TIMEOUT_S:g} s by a process that died or hangs.")

    def _draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Lanes and absolute row numbers of ``count`` transitions."""
        written = self._cursors()
        held_back = self.stack - 1  # the rows before a ring's oldest frame are gone, so its stack is unknown
        oldest = np.where(written > self._rows, written - self._rows + held_back + self._margin, 0)
        choices = np.maximum(written - self.n_step - oldest, 0)
        ends = choices.cumsum()
        if not ends[-1]:
            raise LookupError("the replay holds no complete transition yet")
        lane, row = np.empty(count, np.int64), np.empty(count, np.int64)
        missing = np.arange(count)
        for _ in range(1000):
            drawn = self._rng.integers(ends[-1], size=len(missing))
            lane[missing] = at = np.searchsorted(ends, drawn, side="right")
            row[missing] = oldest[at] + drawn - (ends[at] - choices[at])
            missing = missing[~self._flat["transition"][self._index(at, row[missing])]]
            if not len(missing):
                return lane, row
        raise LookupError("the replay holds hardly any transition yet")

    def _gather(self, lane: np.ndarray, row: np.ndarray) -> tuple[Batch, np.ndarray]:
        """The batch that starts at ``row`` and the oldest row it needed, ``(B,)``."""
        flat = self._flat
        start = self._index(lane, row)
        rewards = flat["rewards"][start].copy()
        terminated = flat["terminated"][start]
        running = ~(terminated | flat["truncated"][start])
        steps = np.ones(len(row), np.int64)
        for k in range(1, self.n_step):
            at = self._index(lane, row + k)
            rewards += running * self._gammas[k] * flat["rewards"][at]
            terminated = terminated | (running & flat["terminated"][at])
            steps += running
            running = running & ~(flat["terminated"][at] | flat["truncated"][at])
        observations, oldest = self._stacks(lane, row)
        next_observations, _ = self._stacks(lane, row + steps)
        discounts = self._gammas[steps] * ~terminated
        actions = flat["actions"][start].astype(np.int64)
        return Batch(observations, actions, rewards, next_observations, discounts), oldest

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
        return lane * self._rows + row % self._rows
