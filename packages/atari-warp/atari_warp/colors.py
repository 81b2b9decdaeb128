"""The console's colours as ALE shows them."""

from __future__ import annotations

import functools
import json

import numpy as np

from atari_warp.games import FOLDER


@functools.cache
def palette(pal: bool = False) -> np.ndarray:
    """Red, green and blue of each colour of an American television, or of a European one, ``(256, 3) uint8``."""
    colors = np.zeros((256, 3), np.uint8)
    colors[::2] = _even(pal)
    colors[1::2] = shades(pal)[::2, None]  # which a European television shows after an odd number of lines
    return colors


@functools.cache
def shades(pal: bool = False) -> np.ndarray:
    """The gray of each colour as ALE has it, ``(256,) uint8``."""
    colors = _even(pal)
    gray = np.zeros(256, np.uint8)
    gray[::2] = (colors @ [299, 587, 114] + 500) // 1000
    if pal:
        gray[134] = 110
    gray[1::2] = np.roll(colors[:, 2], -1)  # the blue of the next colour, by trial
    return gray


def _even(pal: bool) -> np.ndarray:
    """Of the even numbers, ``(128, 3) int``; the odd ones are a European television's."""
    return np.array(json.loads((FOLDER / "palette.json").read_text())["pal" if pal else "ntsc"])
