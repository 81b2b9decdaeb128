"""Uniform sampling: all stored transitions are equally likely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from dqnspeed.buffers.device_storage import DeviceStorage
from dqnspeed.buffers.replay import Replay
from dqnspeed.buffers.ring_buffer import row_ranges
from dqnspeed.buffers.sampler import Sampler, Window
from dqnspeed.config.registry import register
from dqnspeed.execution.arrays import Array, put
from dqnspeed.execution.counter_rng import CounterGenerator


class UniformSampler:
    """Draws among the transitions, which it numbers for each environment in a ring of its own.

    The final frames of episodes, which are rows but no transitions, are never drawn.

    Attributes:
        newest: rows received of each environment, ``(num_envs,) int64`` on the device.
    """

    weighted = False

    def __init__(self, storage: DeviceStorage, seed: int):
        self.storage, self._random = storage, CounterGenerator([seed, 4], storage.arrays)
        envs = storage.num_envs
        self._first = np.zeros(envs, np.int64)  # number of the oldest transition of each environment
        self._next = np.zeros(envs, np.int64)  # number of its next transition
        self._row_of = np.zeros(envs * storage.num_rows, np.int64)  # row of a transition, by environment and number
        # Of each environment: cumulative transitions; offset of a draw from a transition's number; rows received.
        self._counts = np.zeros((3, envs), np.int64)
        self._held_row_of, self._held_counts = map(storage.arrays.own, (self._row_of, self._counts))
        self.newest = self._held_counts[2]

    def update(self, before: Window, now: Window) -> Mapping[str, np.ndarray]:
        storage = self.storage
        if now.begin is not before.begin:  # a row that is gone may have been the oldest transition
            env, number = row_ranges(self._first, np.minimum(self._first + now.begin - before.begin, self._next))
            gone = self._row_of[storage.index(env, number)] < now.begin[env]
            self._first += np.bincount(env[gone], minlength=storage.num_envs)
        env, row = row_ranges(np.maximum(before.end, now.begin), now.end)
        transition = storage.flat["transition"][storage.index(env, row)]
        env, row = env[transition], row[transition]
        added = np.bincount(env, minlength=storage.num_envs)
        number = self._next[env] + np.arange(len(env)) - (added.cumsum() - added)[env]
        self._next += added
        changed = storage.index(env, number)
        self._row_of[changed] = row
        held = self._next - self._first
        self._counts[0] = held.cumsum()
        self._counts[1] = self._counts[0] - held - self._first
        self._counts[2] = storage.received
        if storage.device.type == "cpu":  # draws read these arrays
            return {}
        return {"changed": changed, "row_of": self._row_of[changed], "counts": self._counts}

    def store(self, arrays: Mapping[str, Array]) -> None:
        if "counts" in arrays:
            put(self._held_row_of, arrays["changed"], arrays["row_of"])
            put(self._held_counts, slice(None), arrays["counts"])

    def is_empty(self) -> bool:
        return not self._counts[0, -1]

    def draw(self, count: int) -> tuple[Array, Array, Array | None]:
        ends, offsets, _ = self._held_counts
        arrays = self.storage.arrays
        drawn: Array = self._random.below(ends[-1], count)
        env = arrays.xp.searchsorted(ends, drawn, side="right")
        number = drawn - arrays.take(offsets, env)
        return env, arrays.take(self._held_row_of, self.storage.index(env, number)), None

    def update_priorities(self, index: Array, errors: Tensor) -> None:
        """Do nothing: all transitions are equally likely."""

    def state_dict(self) -> dict[str, Any]:
        return {"random": self._random.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._random.load_state_dict(state["random"])
        self._first[:] = self._next[:] = 0
        window = self.storage.window
        self.store(self.storage.send(self.update(Window(window.begin, window.begin), window)))

    def resume_empty(self, updates: int) -> None:
        """Do nothing: draws do not depend on updates."""


@register("replay", "uniform")
@dataclass(frozen=True)
class UniformReplay(Replay):
    """All transitions are equally likely."""

    def make(self, storage: DeviceStorage, seed: int) -> Sampler:
        return UniformSampler(storage, seed)
