"""Probe of ALE as a black box: reward, lives and game over that its rules of a game find in a memory."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from atari_warp.ale import ale_action, make_ale

Image = np.ndarray  # memory of a console, (128,) uint8
SEGMENT_FRAMES = 120  # two seconds, the horizon of foresight
CANDIDATES = 8  # ways to play a segment
HABIT_SEGMENTS = 5  # ten seconds with one preferred action
LONGEST_ACTIONS = (4, 15, 40, 90)  # frames
MAX_EXAMPLES = 12  # memories kept for each relevant byte


def idle_rom(number: int = 0) -> bytes:
    """Return a ROM of 4 KiB that draws frames and leaves the memory alone.

    While SELECT or the joystick is pressed, the memory changes in every frame, in a way that ``number`` chooses. ALE
    starts some games by pressing SELECT until the memory shows the right mode, so a ROM has to reach it.
    """
    code = bytearray.fromhex("78 D8 A2 FF 9A")  # SEI; CLD; LDX #255; TXS
    frame = 0xF000 + len(code)
    code += bytes.fromhex("A9 02 85 02 85 00 85 02 85 02 85 02 A9 00 85 00")  # three lines of VSYNC
    code += bytes.fromhex("AD 82 02 29 02 09 FD 2D 80 02 C9 FF F0 11")  # nothing pressed: skip the next part
    code += bytes.fromhex("A2 7F B5 80 2A 55 81 6D 84 02 69") + bytes([number])  # each byte, its neighbour, the timer
    code += bytes.fromhex("95 80 CA 10 F1")
    code += bytes.fromhex("A2 C8 85 02 CA D0 FB 4C") + frame.to_bytes(2, "little")  # 200 lines
    return bytes(code.ljust(0xFFC, b"\xea")) + bytes.fromhex("00F000F0")


class AleProbe:
    """ALE's rules of a game, asked about memories.

    Args:
        game: ALE's name of the game.
        first: memory at the start of a real game, which the rules see first.

    Attributes:
        state: ALE's state that :meth:`ask` starts from.
    """

    def __init__(self, game: str, first: Image):
        with tempfile.TemporaryDirectory() as folder:
            rom = Path(folder) / f"{game}.bin"
            for number in range(256):
                rom.write_bytes(idle_rom(number))
                try:
                    self._ale = make_ale(game, rom=rom)
                    break
                except RuntimeError:  # ALE stopped pressing SELECT before the mode was reached
                    if number == 255:
                        raise
        self._noop, self._ram = ale_action(0), self._ale.getRAM()
        for _ in range(2_000):  # until the memory after the start is not a game over
            self._set(first)
            self._ale.reset_game()
            if not self._ale.game_over():
                break
            self._ram = self._ale.getRAM()
        self._ram = self._ale.getRAM()
        self._fresh, self._fresh_ram = self._ale.cloneState(), self._ale.getRAM()
        self.first = first
        self.after(first)

    def after(self, *images: Image) -> bool:
        """Let the rules see these memories, and return whether the game is not over then."""
        self._ale.restoreState(self._fresh)
        self._ram = self._fresh_ram.copy()
        for image in (self.first, *images):
            self._set(image)
            self._ale.act(self._noop)
        self.state = self._ale.cloneState(), self._ram.copy()
        return not self._ale.game_over()

    def ask(self, image: Image) -> tuple[int, int, bool]:
        """Return reward, lives and game over for a memory that follows :attr:`state`."""
        saved, self._ram = self.state
        self._ale.restoreState(saved)
        self._set(image)
        reward = self._ale.act(self._noop)
        return reward, self._ale.lives(), self._ale.game_over()

    def _set(self, image: Image) -> None:
        for byte in np.flatnonzero(self._ram != image):
            self._ale.setRAM(int(byte), int(image[byte]))
        self._ram = np.array(image)


@dataclass(frozen=True)
class Play:
    """Real games: memories ``(N, 128) uint8`` before and after each frame, and ALE's results."""

    before: np.ndarray
    after: np.ndarray
    rewards: np.ndarray
    lives: np.ndarray
    over: np.ndarray

    @classmethod
    def of(cls, game: str, frames: int, seed: int) -> Play:
        """Play a game in ALE at random, and in the second half of the frames with foresight.

        For ten seconds at a time one action comes more often than the others, and actions last for up to some longest
        time. With foresight, eight ways to play two seconds are tried, and the way is taken that ends no game, keeps
        most lives and scores most points.
        """
        ale, draws = make_ale(game), random.Random(seed)
        actions, rows = list(ale.getMinimalActionSet()), list[tuple[Any, ...]]()
        segment = 0
        while len(rows) < frames:
            if segment % HABIT_SEGMENTS == 0:
                preferred, longest = draws.choice([None, *actions]), draws.choice(LONGEST_ACTIONS)
            begin, ways = ale.cloneState(), list[tuple[Any, ...]]()
            for way in range(1 if len(rows) < frames / 2 else CANDIDATES):
                ale.restoreState(begin)
                played, until = list[tuple[Any, ...]](), 0
                while len(played) < SEGMENT_FRAMES and not (played and ale.game_over()):
                    if len(played) == until:
                        repeats = preferred is not None and draws.random() < 0.6
                        action = preferred if repeats else draws.choice(actions)
                        until += draws.randint(4, longest)
                    before, reward = ale.getRAM(), ale.act(action)
                    played.append((before, ale.getRAM(), reward, ale.lives(), ale.game_over()))
                points = sum(reward for _, _, reward, _, _ in played)
                ways.append((not ale.game_over(), ale.lives(), points, way, played, ale.cloneState()))
            *_, played, end = max(ways)
            ale.restoreState(end)
            rows += played
            segment += 1
            if ale.game_over():
                ale.reset_game()
        return cls(*map(np.array, zip(*rows[:frames], strict=True)))


class Pool:
    """Memories to ask about: real ones, and real ones with random bytes or bytes of others.

    Attributes:
        live, ends: memories ``(N, 128) uint8`` of games in progress, and of game overs.
    """

    def __init__(self, play: Play, draws: np.random.Generator):
        self.live, self.ends, self._draws = play.after[~play.over], play.after[play.over], draws

    def __call__(self) -> Image:
        draws = self._draws
        image = self.real()
        kind, count = draws.integers(5), 2 ** int(draws.integers(8))
        if kind == 0:
            return image
        at = draws.integers(128, size=count)
        if kind == 1:
            image[at] = draws.integers(256, size=count)
        elif kind == 2:
            image[at] = draws.choice([0, 1, 2, 127, 128, 129, 254, 255], size=count)
        elif kind == 3:
            image[at] = self.real()[at]
        else:
            image = draws.integers(256, size=128).astype(np.uint8)
        return image

    def real(self) -> Image:
        from_ends = len(self.ends) and self._draws.random() < 0.5
        return np.array(self._draws.choice(self.ends if from_ends else self.live))


def relevant(function: Callable[[Image], Any], pool: Pool, patience: int = 1500) -> dict[int, list[Image]]:
    """Find the bytes that a function of a memory depends on.

    Two memories with different results that agree in all known bytes differ in an unknown one, which bisection finds.

    Args:
        patience: pairs of memories without a new byte, after which the search ends.

    Returns:
        Memories in which a change of the byte matters, by byte.
    """
    found = dict[int, list[Image]]()
    since = 0
    while since < patience:
        left, right = pool(), pool()
        if len(found) and since % 4:  # in every fourth pair known bytes may differ, for more example memories
            right[list(found)] = left[list(found)]
        result, other = function(left), function(right)
        since += 1
        if result == other:
            continue
        bytes_ = list(np.flatnonzero(left != right))
        if not bytes_:
            continue  # equal memories, different results: the function depends on more than the memory
        while len(bytes_) > 1:
            half = bytes_[: len(bytes_) // 2]
            middle = left.copy()
            middle[half] = right[half]
            if function(middle) == result:
                left, bytes_ = middle, bytes_[len(bytes_) // 2 :]
            else:
                right, bytes_ = middle, half
                other = function(middle)
        byte = int(bytes_[0])
        if byte not in found:
            found[byte], since = [], 0
        if len(found[byte]) < MAX_EXAMPLES:
            found[byte].append(left)
    return found


def sweep(function: Callable[[Image], Any], image: Image, byte: int) -> list[Any]:
    """Results of a function for a memory with each of the 256 values of a byte."""
    image, results = image.copy(), []
    for value in range(256):
        image[byte] = value
        results.append(function(image))
    return results
