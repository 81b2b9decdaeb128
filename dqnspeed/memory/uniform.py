"""Uniform replay: transitions drawn at random from all that are stored (Lin 1992, Mnih et al. 2015)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dqnspeed.config.registry import register
from dqnspeed.memory.base import Memory, Replay, ReplayArguments
from dqnspeed.memory.buffers import LocalBuffers, SharedBuffers
from dqnspeed.memory.n_step import Batch, NStepRings


class UniformReplay(NStepRings):
    """Rings sampled uniformly over all complete transitions.

    Where another process writes (``concurrent``), a batch whose rows were overwritten meanwhile is drawn again.
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
        super().__init__(buffers, stack, n_step, gamma, concurrent, lock)
        self._rng = np.random.default_rng(seed)

    def discard_pending(self) -> None:
        """Nothing: a replay also learns from random actions."""

    def sample(self, batch_size: int) -> Batch:
        """Draw ``batch_size`` transitions with replacement, uniformly over those that are complete.

        Raises:
            LookupError: there is none yet.
        """
        while True:
            lane, row = self.draw(batch_size)
            batch, oldest = self._gather(lane, row)
            if not self._margin or (oldest > self.cursors()[lane] - self._rows).all():
                return batch

    def state_dict(self) -> dict[str, Any]:
        """All stored rows, and the state of the generator."""
        return {**super().state_dict(), "rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._rng.bit_generator.state = state["rng"]

    def draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Lanes and absolute row numbers of ``count`` transitions."""
        written = self.cursors()
        oldest = self._oldest_whole(written)
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

    def _oldest_whole(self, written: np.ndarray) -> np.ndarray:
        """The oldest row of each lane whose stack is known and stays there while it is read."""
        held_back = self.stack - 1  # the rows before a ring's oldest frame are gone
        oldest = np.where(written > self._rows, written - self._rows + held_back + self._margin, 0)
        return np.maximum(oldest, np.where(self._oldest > 0, self._oldest + held_back, 0))


@register("replay", "uniform")
@dataclass(frozen=True)
class Uniform(Replay):
    """All transitions are equally likely."""

    def make(self, arguments: ReplayArguments) -> Memory:
        return UniformReplay(**vars(arguments))
