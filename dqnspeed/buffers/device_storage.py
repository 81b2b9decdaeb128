"""Rings as the learner reads them: arrays on the host, or tensors on its device."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnspeed.buffers.gather import stack_places, take_stacks
from dqnspeed.buffers.ring_buffer import Rings, Rows, each
from dqnspeed.buffers.storage import LocalBuffers, SharedBuffers
from dqnspeed.envs import AnyArray
from dqnspeed.execution.arrays import Array, Arrays, host
from dqnspeed.execution.transfer import ToDevice

CHUNK = 4096  # frames of a checkpoint that cross at once
PARCEL = 2**20  # bytes of frames that are sent at once, if the learner does not ask for what there is


class HeldRings(Rings):
    """Rings that are held where the learner wants them.

    On the host they are the very arrays that actors write, if those have room for all frames. Else they are copies,
    which rows join in batches as they come (:meth:`receive`): each frame crosses once. Actors may then write as many
    rows ahead as the arrays have frames; what is held changes only when the learner says so.

    Frames that this process appends as tensors, where they are held, are copied into their places at once: nothing is
    drawn between that and the next :meth:`receive`.

    Args:
        device: of tensors that hold them; ``None``: NumPy's arrays on the host.
        apart: hold copies, also where these arrays have room for all: others write while they are read.
    """

    def __init__(
        self,
        buffers: LocalBuffers | SharedBuffers,
        stack: int,
        device: torch.device | None = None,
        apart: bool = False,
    ):
        super().__init__(buffers)
        self.stack, self.arrays = stack, Arrays(device)
        self.device = device or torch.device("cpu")
        self._staged: int = self._columns["frames"].shape[1]
        self._placed = False  # rows that are not received yet have their frames where they are held
        self._copies = apart or self.device.type != "cpu" or self._staged < self._rows
        self._received = np.array(self._written)
        self._oldest = np.zeros_like(self._written)  # first row of each lane that was restored
        self._to_device = ToDevice(self.device, pin_memory=True, beside=True)
        lanes, frames = len(self._written), self._columns["frames"]
        self._together = max(1, min(self._staged // 2, PARCEL * self._staged // frames.nbytes))  # rows of every lane
        self._held = dict[str, Array]()
        for name, flat in self._flat.items():
            if self._copies:
                self._held[name] = self.arrays.zeros((lanes * self._rows, *flat.shape[1:]), flat.dtype)
            else:
                self._held[name] = self.arrays.own(flat)

    def append(self, rows: Rows, lane: int = 0) -> None:
        placed = self._is_here(rows.frames)
        if self._copies and (placed != self._placed or self._written[lane] - self._received[lane] >= self._together):
            self.receive()
        self._placed = placed
        super().append(rows, lane)

    def sample(self, batch_size: int) -> Any:
        """The next batch."""
        raise NotImplementedError

    def samples_in_batch(self, batch_size: int) -> int:
        """Transitions in the batch that was drawn last, without padding."""
        return batch_size

    def receive(self) -> None:
        """Take in the rows that came since the last call; nothing waits for the device."""
        now = self.cursors()
        if (now == self._received).all():
            return
        before, self._received = self._received, now
        if news := self._news(before):
            self._take_in(self._sent(news))

    def rows_allowed(self) -> np.ndarray:
        """As many rows as there is room for until they are received; no lane needs to wait for the others."""
        if not self._copies or not isinstance(self.buffers, SharedBuffers):  # who writes here alone receives first
            return np.full(len(self._written), np.inf)
        if (self.cursors() - self._received).max() > self._staged // 4:
            self.receive()
        return self._received + float(self._staged)

    def recent_frames(self, count: int) -> np.ndarray:
        """Up to ``count`` frames ``(K, C, ...)`` spread evenly over what is stored."""
        self.receive()
        written = np.minimum(self._received, self._rows)
        rows = np.concatenate([lane * self._rows + np.arange(held) for lane, held in enumerate(written)])
        return self._frames_at(rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64)])

    def frames_of(self, lane: int, begin: int, end: int) -> np.ndarray:
        """The frames ``(K, C, ...)`` of the rows ``begin .. end - 1`` of ``lane``, as far as they are still stored."""
        self.receive()
        oldest = max(int(self._oldest[lane]), int(self._received[lane]) - self._rows)
        return self._frames_at(self._index(lane, np.arange(max(begin, oldest), end)))

    def cut(self, lane: int, count: int) -> list[tuple[int, int]]:
        """Close the episodes that lanes ``lane .. lane + count - 1`` are in the middle of, which will not be continued.

        The newest row of each lane becomes its episode's last frame, and the episode counts as truncated there.

        Returns:
            Lanes and rows that were transitions and are none any more.
        """
        self.receive()
        unmade, changed = list[tuple[int, int]](), list[int]()
        for i in range(lane, lane + count):
            written = int(self._written[i])
            if not written:
                continue
            last, before = (int(self._index(i, written - k)) for k in (1, 2))
            if self._flat["transition"][last]:
                unmade.append((i, written - 1))
            for name in ("transition", "terminated", "truncated"):
                self._flat[name][last] = False
            ended = self._flat["terminated"][before] or not self._flat["transition"][before]
            if written > 1 and self._flat["age"][last] and not ended:
                self._flat["truncated"][before] = True
            changed += [last, before]
        if self._copies and changed:
            at = np.array(changed)
            for name in ("transition", "terminated", "truncated"):
                self._held[name][self.arrays.own(at)] = self.arrays.own(self._flat[name][at])
        return unmade

    def writer_gone(self, lane: int) -> None:
        """Called when the process that wrote ``lane`` and others is dead: it may have held their lock."""
        if self._locks:
            lock = self._lock_of(lane)
            lock.acquire(block=False)
            own = self._by_writer(self._written)[lane * len(self._locks) // len(self._written)]
            own[:] = own.min()  # they share a cursor, and it may have been killed between two of them
            lock.release()

    def state_dict(self) -> dict[str, Any]:
        """All stored rows."""
        self.receive()
        held = min(int(self._received.max(initial=0)), self._rows)
        columns = {name: column[:, :held] for name, column in self._columns.items() if name != "frames"}
        columns["frames"] = self._frames_held(held)
        return {"columns": columns, "written": self._received.copy(), "oldest": self._oldest.copy(), "rows": self._rows}

    def resume_empty(self, updates: int) -> None:
        """Nothing here depends on how often the learner has learnt."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a :meth:`state_dict`, also of longer or shorter rings, and of another device."""
        self._written[:] = self._received = np.array(state["written"])
        before = state["rows"]
        self._oldest[:] = np.maximum(state.get("oldest", 0), self._written - before)
        frames = self._frames()
        for lane, written in enumerate(self._written):
            rows = np.arange(max(0, written - min(before, self._rows)), written)
            here, there = rows % self._rows, rows % before
            for name, stored in state["columns"].items():
                if name == "frames":
                    for part in range(0, len(here), CHUNK):  # a device may have no room for all of them twice
                        to, of = here[part : part + CHUNK], there[part : part + CHUNK]
                        frames[lane, self.arrays.own(to)] = self.arrays.own(stored[lane, of])
                else:
                    self._columns[name][lane, here] = stored[lane, there]
        if self._copies:
            for name in self._held:
                if name != "frames":
                    self._held[name][:] = self.arrays.own(self._flat[name])

    def close(self) -> None:
        self._held = {}
        super().close()

    def _is_here(self, frames: AnyArray) -> bool:
        """Whether they are a tensor where copies are held, and no other process writes."""
        held, shared = self._held["frames"], isinstance(self.buffers, SharedBuffers)
        both = isinstance(frames, Tensor) and isinstance(held, Tensor)
        return self._copies and both and frames.device == held.device and not shared

    def _write_frames(self, frames: AnyArray, lanes: slice, row: int) -> None:
        if self._placed:
            self._frames()[lanes, row % self._rows] = frames
        else:
            super()._write_frames(frames, lanes, row)

    def _news(self, before: np.ndarray) -> dict[str, np.ndarray]:
        """What is to be stored where rings are held, by name, of the rows that were received since ``before``."""
        names = [name for name in self._held if not (name == "frames" and self._placed)]
        if not self._copies:
            return {}
        lane, row = each(before, self._received)
        staged, at = lane * self._staged + row % self._staged, self._index(lane, row)
        news = {name: self._flat[name][staged if name == "frames" else at] for name in names}
        return {**news, "at": at}

    def _sent(self, arrays: Mapping[str, np.ndarray]) -> Mapping[str, Array]:
        """The same where rings are held."""
        return arrays if self.arrays.device is None else self._to_device(arrays)

    def _take_in(self, there: Mapping[str, Array]) -> None:
        """Store what :meth:`_news` gave, now on the device."""
        for name in self._held.keys() & there.keys():
            self._held[name][there["at"]] = there[name]

    def _frames(self) -> Array:
        """``(lanes, rows, C, ...)``."""
        frames = self._held["frames"]
        return frames.reshape(len(self._written), self._rows, *frames.shape[1:])

    def _frames_held(self, count: int) -> np.ndarray:
        """The first ``count`` frames of each lane, ``(lanes, count, C, ...)``."""
        frames = self._frames()
        if self.arrays.device is None:
            held: np.ndarray = frames[:, :count]
            return held
        held = np.empty((len(frames), count, *frames.shape[2:]), self._flat["frames"].dtype)
        for lane, row in itertools.product(range(len(frames)), range(0, count, CHUNK)):
            held[lane, row : row + CHUNK] = host(frames[lane, row : min(row + CHUNK, count)])
        return held

    def _frames_at(self, index: np.ndarray) -> np.ndarray:
        return host(self.arrays.take(self._held["frames"], self.arrays.own(index)))

    def _unlearnt(self, begin: np.ndarray) -> dict[str, Any]:
        """What :meth:`state_dict` gives, in the shortest rings that suffice to continue from the rows ``begin``."""
        self.receive()
        written = self._received.copy()
        needed = written - begin + self.stack + 1  # with the frames of a stack, and the rows that :meth:`cut` reads
        rows = min(int(needed.max(initial=1)), self._rows)
        kept = [np.arange(max(0, end - rows), end) for end in written]
        columns = {}
        for name, column in self._columns.items():
            columns[name] = np.zeros((len(column), rows, *column.shape[2:]), column.dtype)
            for lane, lasting in enumerate(kept):
                at = self._index(lane, lasting)
                columns[name][lane, lasting % rows] = (
                    self._frames_at(at) if name == "frames" else self._flat[name][at]
                )  # fmt: skip
        return {"columns": columns, "written": written, "rows": rows}

    def _transitions(self, begin: np.ndarray, end: np.ndarray) -> int:
        """Transitions in the rows ``begin[lane] .. end[lane] - 1`` of all lanes."""
        return int(self._flat["transition"][self._index(*each(begin, end))].sum())

    def _stacks_at(self, places: Array) -> Tensor:
        return self.arrays.tensor(take_stacks(self.arrays, self._held["frames"], places))

    def _stack_places(self, lane: Array, row: Array) -> Array:
        return stack_places(self.arrays, self._held["age"], lane, row, self.stack, self._rows)
