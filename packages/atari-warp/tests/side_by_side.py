"""One program in ALE and in the emulator, frame by frame."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
from atari_warp import Emulator, known_games
from atari_warp.ale import ale_action, make_ale
from atari_warp.rules import Rules

# ALE plays any file under this name, and the game is not over while the first byte of the memory is at least 16.
NAME = "pitfall"


@functools.cache
def consoles(device: str, number: int = 1) -> Emulator:
    """``number`` consoles with 4 KiB of ROM; each program replaces the ROM, which is faster than new consoles."""
    return Emulator(dataclasses.replace(known_games()[NAME], rules=Rules()), number, device)


def load(emulator: Emulator, image: bytes) -> None:
    emulator._rom.assign(np.frombuffer(image, np.uint8))
    emulator._load()


def ale_with(image: bytes, folder: Path, name: str = NAME) -> Any:
    path = folder / f"{name}.bin"
    path.write_bytes(image)
    return make_ale(name, rom=path)


class Pair:
    """ALE and the emulator with the same ROM."""

    def __init__(self, image: bytes, folder: Path, device: str = "cpu"):
        self.emulator, self.ale = consoles(device), ale_with(image, folder)
        load(self.emulator, image)

    def frame(self, action: int = 0) -> None:
        """Play a frame in both. ALE plays no frame after a game over, which would be an error here."""
        before = self.ale.getEpisodeFrameNumber()
        self.ale.act(ale_action(action))
        self.emulator.step([action])
        assert self.ale.getEpisodeFrameNumber() == before + 1

    def set_ram(self, cells: dict[int, int]) -> None:
        """Write bytes into both memories, by their addresses from 128 on."""
        for address, value in cells.items():
            self.ale.setRAM(address - 128, value)
        state = self.emulator._state.numpy()
        for address, value in cells.items():
            state[0, address - 128] = value
        if not self.emulator.device.is_cpu:
            self.emulator._state.assign(state)

    def rams(self) -> tuple[np.ndarray, np.ndarray]:
        """Memory of ALE and of the emulator, ``(128,) uint8`` each."""
        return self.ale.getRAM(), self.emulator.ram()[0]

    def screens(self) -> tuple[np.ndarray, np.ndarray]:
        """Picture of ALE and of the emulator, ``(rows, 160) uint8`` each."""
        return self.ale.getScreen(), self.emulator.screen()[0]

    def difference(self) -> str:
        """Describe the difference, or return an empty string."""
        theirs, ours = self.rams()
        if (theirs != ours).any():
            cells = ", ".join(
                f"{at + 128:02X}: ALE {theirs[at]:02X}, here {ours[at]:02X}"
                for at in np.flatnonzero(theirs != ours)[:8]
            )
            return f"memory: {cells}"
        theirs, ours = self.screens()
        if (theirs != ours).any():
            row, x = np.argwhere(theirs != ours)[0]
            return (
                f"{(theirs != ours).sum()} pixels, the first at {row}, {x}: ALE {theirs[row, x]}, here {ours[row, x]}"
            )
        return ""
