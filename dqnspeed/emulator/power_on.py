"""What a console has when it is switched on, as ALE starts it."""

from __future__ import annotations

import functools
import json

import numpy as np

from dqnspeed.emulator.games import FOLDER


def memory_at_first() -> np.ndarray:
    """A console's, and behind it a Superchip's."""
    return np.concatenate([np.array(power_on()["ram"], np.uint8), np.fromfile(FOLDER / "superchip.bin", np.uint8)])


@functools.cache
def power_on() -> dict[str, list[int]]:
    loaded: dict[str, list[int]] = json.loads((FOLDER / "power_on.json").read_text())
    return loaded
