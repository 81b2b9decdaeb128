"""Recordings of consoles, to compare two ways to play the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from atari_warp import Emulator


def record(emulator: Emulator, actions: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Play four frames with each of ``actions``, and return memory and picture after each, ``(N, bytes) uint8``."""
    rows = []
    for action in actions:
        emulator.step(action, frames=4, drawn=2)
        rows.append(np.concatenate([emulator.ram(), emulator.screen().reshape(emulator.num_envs, -1)], axis=1))
    return rows
