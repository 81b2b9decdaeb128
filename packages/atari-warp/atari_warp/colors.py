"""Colours of the console as ALE shows them."""

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
