"""Saved states of one game, with the methods of ALE's ``ALEState``."""

from __future__ import annotations

import struct
from typing import Any

from atari_warp.games import EmulatorError

# Name, version of the emulator, mode, difficulty, frame number, episode frame number, with random numbers, length.
HEADER = struct.Struct("<8s16siiqqiI")
MAGIC = b"atariwp1"


class ALEState:
    """State of a game with its pictures, from :meth:`atari_warp.ALEInterface.cloneState`.

    Args:
        serialized: bytes from :meth:`serialize`; without, an empty state that cannot be restored.

    Raises:
        EmulatorError: the bytes are not a state.
    """

    __hash__ = None  # type: ignore[assignment]  # as in ALE

    def __init__(self, serialized: bytes = b""):
        self._bytes = bytes(serialized)
        if not self._bytes:
            self._header = (MAGIC, b"", 0, 0, 0, 0, 0, 0)
            return
        header = HEADER.unpack_from(self._bytes) if len(self._bytes) >= HEADER.size else (b"",)
        if header[0] != MAGIC or header[-1] != len(self._bytes) - HEADER.size:
            raise EmulatorError("serialized: is not a state of atari_warp. Pass the result of ALEState.serialize().")
        self._header = header

    @classmethod
    def of(
        cls, console: bytes, version: str, mode: int, difficulty: int, frames: tuple[int, int], with_rng: bool
    ) -> ALEState:
        """Return the state of a console.

        Args:
            frames: frames since the ROM was loaded, and frames of the game.
        """
        numbers = (mode, difficulty, *frames, with_rng, len(console))
        return cls(HEADER.pack(MAGIC, version.encode(), *numbers) + console)

    def __eq__(self, other: object) -> bool:
        return self._bytes == other._bytes if isinstance(other, ALEState) else NotImplemented

    def __reduce__(self) -> tuple[Any, ...]:
        return ALEState, (self._bytes,)

    def equals(self, other: ALEState) -> bool:
        """Whether both states are equal."""
        return self == other

    def serialize(self) -> bytes:
        """Return bytes that :class:`ALEState` takes."""
        return self._bytes

    def getFrameNumber(self) -> int:
        """Frames since the ROM was loaded."""
        return int(self._header[4])

    def getEpisodeFrameNumber(self) -> int:
        """Frames of the game."""
        return int(self._header[5])

    def getCurrentMode(self) -> int:
        """ALE's number of the mode."""
        return int(self._header[2])

    def getDifficulty(self) -> int:
        """ALE's number of the difficulty."""
        return int(self._header[3])

    @property
    def version(self) -> str:
        """Emulator and game that the state belongs to; empty for an empty state."""
        return str(self._header[1].decode())

    @property
    def with_rng(self) -> bool:
        """Whether random numbers of repeated actions are part of the state."""
        return bool(self._header[6])

    @property
    def console(self) -> bytes:
        """Bytes of the console, as :meth:`atari_warp.one_console.OneConsole.save` returned them."""
        return self._bytes[HEADER.size :]
