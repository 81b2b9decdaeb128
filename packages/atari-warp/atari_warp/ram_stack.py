"""Stacks of the consoles' memories, which are the observations of ``obs_type="ram"``."""

from __future__ import annotations

import numpy as np

from atari_warp import kernels
from atari_warp.console_batch import ConsoleBatch
from atari_warp.preprocessing import Preprocessing

RAM_BYTES = 128


class RamStack:
    """Last ``stack_num`` memories of each console, ``(N, stack_num, 128) uint8``, oldest first."""

    def __init__(self, consoles: ConsoleBatch, options: Preprocessing):
        self._consoles = consoles
        self._blank = options.stack_padding == "zero"
        self.stack = np.zeros((consoles.num_envs, options.stack_num, RAM_BYTES), np.uint8)

    def push(self, numbers: np.ndarray) -> np.ndarray:
        """Add the present memories, and return the stack."""
        moved = numbers[kernels.LEFT_OUT] == 0
        starts = moved & (numbers[kernels.EPISODE_START] != 0)
        self.stack[moved, :-1] = self.stack[moved, 1:]
        ram = self._consoles.ram()
        self.stack[moved, -1] = ram[moved]
        self.stack[starts, :-1] = 0 if self._blank else ram[starts, None]
        return self.stack
