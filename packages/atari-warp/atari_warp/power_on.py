"""What a console has when it is switched on, as ALE starts it."""

from __future__ import annotations

import json

import numpy as np

from atari_warp.games import FOLDER


def memory_at_first() -> np.ndarray:
    """A console's, and behind it a Superchip's at each of its starts."""
    ram = json.loads((FOLDER / "power_on.json").read_text())["ram"]
    return np.concatenate([np.array(ram, np.uint8), np.fromfile(FOLDER / "superchip.bin", np.uint8)])


def timers() -> np.ndarray:
    """The timer's value at each start of a console, ``(16384,) uint8``."""
    return np.fromfile(FOLDER / "timers.bin", np.uint8)
