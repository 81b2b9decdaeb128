"""Memory and timers of a console at power-on, as ALE starts it."""

from __future__ import annotations

import json

import numpy as np

from atari_warp.games import FOLDER


def power_on_memory() -> np.ndarray:
    """128 bytes of a console's RAM, followed by a Superchip's RAM at each of its starts, ``uint8``."""
    ram = json.loads((FOLDER / "power_on.json").read_text())["ram"]
    return np.concatenate([np.array(ram, np.uint8), np.fromfile(FOLDER / "superchip.bin", np.uint8)])


def power_on_timers() -> np.ndarray:
    """Value of the timer at each start of a console, ``(16384,) uint8``."""
    return np.fromfile(FOLDER / "timers.bin", np.uint8)
