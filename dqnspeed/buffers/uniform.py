"""Uniform replay: transitions drawn at random from all that are stored (Lin 1992, Mnih et al. 2015)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dqnspeed.buffers.base import Buffer, Replay, ReplayArguments
from dqnspeed.buffers.gather import place
from dqnspeed.buffers.n_step import Batch, NStepRings
from dqnspeed.buffers.ring_buffer import each
from dqnspeed.buffers.storage import SharedBuffers
from dqnspeed.config.registry import register
from dqnspeed.execution.arrays import Array
from dqnspeed.execution.compiling import compiled
from dqnspeed.execution.counter_rng import CounterGenerator


class NStepReplay(NStepRings):
    """Rings from which transitions are drawn many times, where they are held.

    On a device the draw reads tensors alone, so that it can be part of a captured graph; :meth:`receive` brings them
    up to date.
    """

    def __init__(self, arguments: ReplayArguments):
        given = arguments
        apart = isinstance(given.buffers, SharedBuffers)
        super().__init__(given.buffers, given.stack, given.n_step, given.gamma, given.device, apart)
        self._joined = compiled(self._draw_arrays) if given.compiles and given.device else None
        self._random = CounterGenerator([given.seed, 4], self.arrays)
        lanes = len(self._written)
        self._begin = np.zeros(lanes, np.int64)  # rows of each lane before these are not drawn any more, and
        self._end = np.zeros(lanes, np.int64)  # those from these on not yet: what follows them is not known

    def discard_pending(self) -> None:
        """Nothing: a replay also learns from random actions."""

    def sample(self, batch_size: int) -> Batch:
        """Draw ``batch_size`` transitions with replacement.

        Raises:
            LookupError: there is none yet.
        """
        self.prepare(batch_size)
        return self.draw_batch(batch_size)

    def prepare(self, batch_size: int) -> None:
        self.receive()
        self.check_drawable()

    def draw_batch(self, batch_size: int) -> Batch:
        """Draw from what is on the device."""
        return self._batch(*(self._joined or self._draw_arrays)(batch_size))

    def drawn(self) -> None:
        """Nothing: batches are drawn with replacement."""

    def close(self) -> None:
        self._joined = None
        super().close()

    def check_drawable(self) -> None:
        """Raise :class:`LookupError` if there is nothing to draw."""
        raise NotImplementedError

    def _draw_arrays(self, count: int) -> tuple[Any, ...]:
        """Draw and gather: all that a batch is made of, which the compiler joins in a few kernels."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """All stored rows, and the state of the draw."""
        return {**super().state_dict(), "random": self._random.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._random.load_state_dict(state["random"])

    def _move_on(self) -> tuple[np.ndarray, np.ndarray]:
        """Forget the rows of each lane whose stacks are overwritten; returns the first one, as it was and as it is."""
        oldest = np.maximum(self._received - self._rows, self._oldest)
        oldest = np.where(oldest > 0, oldest + self.stack - 1, 0)  # the rows before a ring's oldest frame are gone
        before = self._begin
        if (oldest > before).any():
            self._begin = np.maximum(before, oldest)
        return before, self._begin


class UniformReplay(NStepReplay):
    """Replay in which all complete transitions are equally likely.

    Rows that are no transitions, the final frames of episodes, are never drawn: transitions have a ring of their own,
    which says in which row each stands.
    """

    def __init__(self, arguments: ReplayArguments):
        super().__init__(arguments)
        lanes = len(self._written)
        self._first = np.zeros(lanes, np.int64)  # numbers of the oldest transition of each lane
        self._made = np.zeros(lanes, np.int64)  # and of the next one that it gets
        self._row_of = np.zeros(lanes * self._rows, np.int64)  # by lane and number of the transition
        # Of each lane: transitions of all up to this one, what is to be taken from a draw there, and rows received.
        self._chances = np.zeros((3, lanes), np.int64)
        self._row_of_there, self._chances_there = map(self.arrays.own, (self._row_of, self._chances))

    @property
    def newest(self) -> Array:
        """Rows that were received of each lane, ``(lanes,) int64`` on the device."""
        return self._chances_there[2]

    def draw(self, count: int) -> tuple[Array, Array]:
        """Lanes and absolute row numbers of ``count`` transitions, ``(count,) int64``, where they are held."""
        ends, offsets, _ = self._chances_there
        drawn = self._random.below(ends[-1], count)
        lane = self.arrays.xp.searchsorted(ends, drawn, side="right")
        number = drawn - self.arrays.take(offsets, lane)
        return lane, self.arrays.take(self._row_of_there, place(lane, number, self._rows))

    def check_drawable(self) -> None:
        if not self._chances[0, -1]:
            raise LookupError("the replay holds no complete transition yet")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._first[:] = self._made[:] = 0
        self._begin[:] = self._end[:] = np.maximum(0, self._written - self._rows)
        self._note()
        if self.device.type != "cpu":
            self._row_of_there[:] = self.arrays.own(self._row_of)
            self._chances_there[:] = self.arrays.own(self._chances)

    def _draw_arrays(self, count: int) -> tuple[Any, ...]:
        return self._gather_arrays(*self.draw(count))

    def _news(self, before: np.ndarray) -> dict[str, np.ndarray]:
        news, at = super()._news(before), self._note()
        if self.device.type == "cpu":
            return news
        return {**news, "numbers": at, "row_of": self._row_of[at], "chances": self._chances}

    def _take_in(self, there: Mapping[str, Array]) -> None:
        super()._take_in(there)
        if "chances" in there:
            self._row_of_there[there["numbers"]] = there["row_of"]
            self._chances_there[:] = there["chances"]

    def _note(self) -> np.ndarray:
        """Bring the ring of transitions up to date; returns the places in it that changed."""
        before, begin = self._move_on()
        # Each row that is gone may have been a transition, the oldest of its lane.
        if before is not begin:
            lane, number = each(self._first, np.minimum(self._first + begin - before, self._made))
            gone = self._row_of[self._index(lane, number)] < begin[lane]
            self._first += np.bincount(lane[gone], minlength=len(begin))
        end = np.maximum(self._end, self._received - self.n_step)
        lane, row = each(np.maximum(self._end, begin), end)
        self._end = end
        whole = self._flat["transition"][self._index(lane, row)]
        lane, row = lane[whole], row[whole]
        counts = np.bincount(lane, minlength=len(begin))
        number = self._made[lane] + np.arange(len(lane)) - (counts.cumsum() - counts)[lane]
        self._made += counts
        at: np.ndarray = self._index(lane, number)
        self._row_of[at] = row
        held = self._made - self._first
        self._chances[0] = held.cumsum()
        self._chances[1] = self._chances[0] - held - self._first
        self._chances[2] = self._received
        return at


@register("replay", "uniform")
@dataclass(frozen=True)
class Uniform(Replay):
    """All transitions are equally likely."""

    def make(self, arguments: ReplayArguments) -> Buffer:
        return UniformReplay(arguments)
