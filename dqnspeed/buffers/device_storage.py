"""Rows of experience where the learner wants them: NumPy's arrays on the host, or tensors on a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnspeed.buffers.ring_buffer import RingBuffer, Rows, row_ranges
from dqnspeed.buffers.sampler import Sampler, Window
from dqnspeed.buffers.storage import HostStorage, SharedStorage
from dqnspeed.execution.arrays import Array, Arrays, host, put
from dqnspeed.execution.transfer import ToDevice

FRAMES_PER_COPY = 4096  # of a checkpoint; a device may have no room for all frames twice
BYTES_PER_COPY = 2**20  # of new frames, unless the learner asks for the rows earlier


class DeviceStorage(RingBuffer):
    """Rings of rows as the learner reads them.

    On the host the learner reads the arrays that actors write, if these have room for all frames. Otherwise it reads
    copies, which take in new rows many at a time (:meth:`receive`): each frame crosses once. Actors may then write as
    many rows ahead as the arrays have frames.

    Frames that this process appends as tensors, on the device of the copies, go into their places at once: nothing is
    drawn between that and the next :meth:`receive`.

    Args:
        host: arrays that actors write.
        stack: frames of an observation.
        n_step: rows after a row that must be known before it is drawn.
        device: of tensors; ``None``: NumPy's arrays on the host.
        copies: read copies in any case, as others write while the learner reads.

    Attributes:
        device: the device of the rows, for the summary; of NumPy's arrays it is the CPU.
        arrays: makes arrays there.
        held: flat columns there.
        received: rows of each environment that the learner may read, ``(num_envs,) int64``.
        window: rows that ``sampler`` may draw.
        sampler: chooses rows of a replay; kept up to date with the rows.
    """

    def __init__(
        self,
        host: HostStorage | SharedStorage,
        stack: int,
        n_step: int = 1,
        device: torch.device | None = None,
        copies: bool = False,
    ):
        super().__init__(host)
        self.stack, self.n_step, self.arrays = stack, n_step, Arrays(device)
        self.device = device or torch.device("cpu")
        self.sampler: Sampler | None = None
        self.received = np.array(self.written)
        self.window = Window(np.zeros_like(self.received), np.zeros_like(self.received))
        self._oldest = np.zeros_like(self.received)  # first row of each environment that was restored
        frames = self.columns["frames"]
        self._frame_rows: int = frames.shape[1]  # rows whose frames the arrays of actors hold
        self._copies = copies or self.device.type != "cpu" or self._frame_rows < self.num_rows
        self._placed = False  # frames of rows that are not received yet are in their places already
        self._rows_per_copy = max(1, min(self._frame_rows // 2, BYTES_PER_COPY * self._frame_rows // frames.nbytes))
        self._to_device = ToDevice(self.device, pin_memory=True, beside=True)
        self.held: dict[str, Array] = {
            name: self.arrays.zeros((self.num_envs * self.num_rows, *flat.shape[1:]), flat.dtype)
            if self._copies
            else self.arrays.own(flat)
            for name, flat in self.flat.items()
        }

    # written

    def append(self, rows: Rows, env_index: int = 0) -> None:
        placed = self._is_here(rows.frames)
        waiting = self.written[env_index] - self.received[env_index]
        if self._copies and (placed != self._placed or waiting >= self._rows_per_copy):
            self.receive()
        self._placed = placed
        super().append(rows, env_index)

    def receive(self) -> None:
        """Take in the rows that were written since the last call, without a wait for the device."""
        received = self.cursors()
        if (received == self.received).all():
            return
        before, self.received = self.received, received
        news = self._new_rows(before) if self._copies else {}
        if self.sampler is not None:
            drawable, self.window = self.window, self._readable(self.window)
            news.update(self.sampler.update(drawable, self.window))
        if news:
            arrays = self.send(news)
            for name in self.held.keys() & arrays.keys():
                put(self.held[name], arrays["at"], arrays[name])
            if self.sampler is not None:
                self.sampler.store(arrays)

    def rows_allowed(self) -> np.ndarray:
        """Row number of each environment at which its actor must wait, ``(num_envs,) float``."""
        if not self._copies or not isinstance(self.host, SharedStorage):  # a writer in this process receives first
            return np.full(self.num_envs, np.inf)
        if (self.cursors() - self.received).max() > self._frame_rows // 4:
            self.receive()
        return self.received + float(self._frame_rows)

    def truncate_open_episodes(self, env_index: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Truncate the episodes that the environments ``env_index .. env_index + count - 1`` are in the middle of.

        The newest row of each environment becomes the last frame of its episode.

        Returns:
            Environments and numbers of rows that were transitions before.
        """
        self.receive()
        flat, env = self.flat, np.arange(env_index, env_index + count)
        env = env[self.written[env] > 0]
        written = self.written[env]
        last, previous = self.index(env, written - 1), self.index(env, written - 2)
        dropped = flat["transition"][last]
        for name in ("transition", "terminated", "truncated"):
            flat[name][last] = False
        is_open = flat["transition"][previous] & ~flat["terminated"][previous]
        flat["truncated"][previous[is_open & (written > 1) & (flat["age"][last] > 0)]] = True
        if self._copies and len(env):
            changed = np.concatenate([last, previous])
            for name in ("transition", "terminated", "truncated"):
                put(self.held[name], self.arrays.own(changed), self.arrays.own(flat[name][changed]))
        return env[dropped], written[dropped] - 1

    def close(self) -> None:
        self.held, self.sampler = {}, None
        super().close()

    # read

    def send(self, arrays: Mapping[str, np.ndarray]) -> Mapping[str, Array]:
        """Move arrays to the device of the rows, in one copy."""
        return arrays if self.arrays.device is None else self._to_device(arrays)

    def stack_index(self, env: Array, row: Array) -> Any:
        """Indices ``(B, stack) int64`` of the frames of observations, oldest first.

        Frames before the start of an episode are replaced by its first frame.
        """
        age = self.arrays.take(self.held["age"], self.index(env, row))[:, None]
        back = self.arrays.xp.minimum(self.arrays.arange(self.stack - 1, -1, -1), age)
        return self.index(env[:, None], row[:, None] - back)

    def observations(self, stack_index: Array) -> Tensor:
        """Observations ``(B, stack * C, ...)`` by the result of :meth:`stack_index`."""
        frames, count = self.held["frames"], len(stack_index)
        found = self.arrays.take(frames, stack_index.reshape(-1))
        return self.arrays.tensor(found.reshape(count, self.stack * frames.shape[1], *frames.shape[2:]))

    def recent_frames(self, count: int) -> np.ndarray:
        """Up to ``count`` frames ``(K, C, ...)`` spread evenly over all that are stored."""
        self.receive()
        stored = np.minimum(self.received, self.num_rows)
        index = np.concatenate([env * self.num_rows + np.arange(rows) for env, rows in enumerate(stored)])
        return self._frames_at(index[np.linspace(0, len(index) - 1, min(count, len(index))).astype(np.int64)])

    def frames_of(self, env_index: int, begin: int, end: int) -> np.ndarray:
        """Frames ``(K, C, ...)`` of the rows ``begin .. end - 1`` of an environment, but of overwritten rows."""
        self.receive()
        oldest = max(int(self._oldest[env_index]), int(self.received[env_index]) - self.num_rows)
        row = np.arange(max(begin, oldest), end)
        return self._frames_at(self.index(np.full_like(row, env_index), row))

    def count_transitions(self, begin: np.ndarray, end: np.ndarray) -> int:
        """Number of transitions in the rows ``begin[env] .. end[env] - 1`` of all environments."""
        return int(self.flat["transition"][self.index(*row_ranges(begin, end))].sum())

    # saved

    def state_dict(self) -> dict[str, Any]:
        """All stored rows; frames by environment, since slices of single rings are saved without a copy."""
        self.receive()
        stored = min(int(self.received.max(initial=0)), self.num_rows)
        columns: dict[str, Any] = {name: column[:, :stored] for name, column in self.columns.items()}
        columns["frames"] = {str(env): self._first_frames(env, stored) for env in range(self.num_envs)}
        written, oldest = self.received.copy(), self._oldest.copy()
        return {"columns": columns, "written": written, "oldest": oldest, "num_rows": self.num_rows}

    def state_dict_from(self, begin: np.ndarray) -> dict[str, Any]:
        """Rows from ``begin[env]`` on and the frames of their stacks, in rings that are as short as possible."""
        self.receive()
        written = self.received.copy()
        needed = written - begin + self.stack + 1  # with the previous row, which truncate_open_episodes reads
        num_rows = min(int(needed.max(initial=1)), self.num_rows)
        env, row = row_ranges(np.maximum(0, written - num_rows), written)
        index, columns = self.index(env, row), dict[str, Any]()
        for name, column in self.columns.items():
            columns[name] = np.zeros((self.num_envs, num_rows, *column.shape[2:]), column.dtype)
            columns[name][env, row % num_rows] = self._frames_at(index) if name == "frames" else self.flat[name][index]
        columns["frames"] = {str(number): ring for number, ring in enumerate(columns["frames"])}
        return {"columns": columns, "written": written, "oldest": np.zeros_like(written), "num_rows": num_rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state, also of longer or shorter rings, and of another device."""
        self.written[:] = self.received = np.array(state["written"])
        saved_rows = state["num_rows"]
        self._oldest[:] = np.maximum(state["oldest"], self.written - saved_rows)
        frames = self._ring_frames()
        for env, written in enumerate(self.written):
            row = np.arange(max(0, written - min(saved_rows, self.num_rows)), written)
            here, there = row % self.num_rows, row % saved_rows
            for name, saved in state["columns"].items():
                if name != "frames":
                    self.columns[name][env, here] = saved[env, there]
            for part in range(0, len(row), FRAMES_PER_COPY):
                to, of = here[part : part + FRAMES_PER_COPY], there[part : part + FRAMES_PER_COPY]
                put(frames, (env, self.arrays.own(to)), self.arrays.own(state["columns"]["frames"][str(env)][of]))
        if self._copies:
            for name in self.held.keys() - {"frames"}:
                put(self.held[name], slice(None), self.arrays.own(self.flat[name]))
        first = np.maximum(0, self.written - self.num_rows)
        self.window = self._readable(Window(first, first))

    def _is_here(self, frames: Array) -> bool:
        """Whether frames can be put into their places at once: on the device of copies that no other process writes."""
        held, shared = self.held["frames"], isinstance(self.host, SharedStorage)
        both = isinstance(frames, Tensor) and isinstance(held, Tensor)
        return self._copies and both and frames.device == held.device and not shared

    def _write_frames(self, frames: Array, envs: slice, row: int) -> None:
        if self._placed:
            put(self._ring_frames(), (envs, row % self.num_rows), frames)
        else:
            super()._write_frames(frames, envs, row)

    def _new_rows(self, before: np.ndarray) -> dict[str, np.ndarray]:
        """Columns of the rows that were received since ``before``, and their index."""
        env, row = row_ranges(before, self.received)
        index = self.index(env, row)
        news = {name: flat[index] for name, flat in self.flat.items() if name != "frames"}
        if not self._placed:
            news["frames"] = self.flat["frames"][env * self._frame_rows + row % self._frame_rows]
        return {**news, "at": index}

    def _readable(self, before: Window) -> Window:
        """Rows whose stacks and next ``n_step`` rows are stored, given the window ``before``."""
        oldest = np.maximum(self.received - self.num_rows, self._oldest)
        oldest = np.where(oldest > 0, oldest + self.stack - 1, 0)  # the rows before a ring's oldest frame are gone
        begin = np.maximum(before.begin, oldest) if (oldest > before.begin).any() else before.begin
        return Window(begin, np.maximum(before.end, self.received - self.n_step))

    def _ring_frames(self) -> Array:
        """Frames ``(num_envs, num_rows, C, ...)``."""
        frames = self.held["frames"]
        return frames.reshape(self.num_envs, self.num_rows, *frames.shape[1:])

    def _first_frames(self, env: int, count: int) -> np.ndarray:
        """The first ``count`` frames in the ring of an environment, ``(count, C, ...)``."""
        frames = self._ring_frames()[env]
        if isinstance(frames, np.ndarray):
            return frames[:count]
        found = np.empty((count, *frames.shape[1:]), self.flat["frames"].dtype)
        for row in range(0, count, FRAMES_PER_COPY):
            found[row : row + FRAMES_PER_COPY] = host(frames[row : min(row + FRAMES_PER_COPY, count)])
        return found

    def _frames_at(self, index: np.ndarray) -> np.ndarray:
        return host(self.arrays.take(self.held["frames"], self.arrays.own(index)))
