"""Colours of the console, and its memory and timers at power-on, as in ALE."""

from __future__ import annotations

import functools
import json

import numpy as np

from atari_warp.games import FOLDER


@functools.cache
def palette(pal: bool = False) -> np.ndarray:
    """Red, green and blue of each colour number, for NTSC or PAL, ``(256, 3) uint8``."""
    colors = np.zeros((256, 3), np.uint8)
    colors[::2] = _even(pal)
    colors[1::2] = gray_levels(pal)[::2, None]  # PAL televisions show gray after an odd number of lines
    return colors


@functools.cache
def gray_levels(pal: bool = False) -> np.ndarray:
    """Gray level of each colour number, ``(256,) uint8``."""
    colors = _even(pal)
    gray = np.zeros(256, np.uint8)
    gray[::2] = (colors @ [299, 587, 114] + 500) // 1000
    if pal:
        gray[134] = 110
    gray[1::2] = np.roll(colors[:, 2], -1)  # ALE uses the blue of the next colour
    return gray


def _even(pal: bool) -> np.ndarray:
    """Red, green and blue of the even colour numbers, ``(128, 3) int``."""
    return np.array(json.loads((FOLDER / "palette.json").read_text())["pal" if pal else "ntsc"])


def power_on_memory() -> np.ndarray:
    """128 bytes of a console's RAM, followed by a Superchip's RAM at each of its starts, ``uint8``."""
    ram = json.loads((FOLDER / "power_on.json").read_text())["ram"]
    return np.concatenate([np.array(ram, np.uint8), np.fromfile(FOLDER / "superchip.bin", np.uint8)])


def power_on_timers() -> np.ndarray:
    """Value of the timer at each start of a console, ``(16384,) uint8``."""
    return np.fromfile(FOLDER / "timers.bin", np.uint8)
