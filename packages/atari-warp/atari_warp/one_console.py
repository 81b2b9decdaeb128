"""One console on a CPU, for environments of one game: with little work beside the frames themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from atari_warp import kernels
from atari_warp.console_data import gray_levels, palette
from atari_warp.consoles import FIELDS, MEMORY_BYTES, NO_LIMIT, Consoles
from atari_warp.emulator import play_settings
from atari_warp.games import Game
from atari_warp.pictures import Pictures

TURN, FRAMES, LIVES, OVER = (FIELDS.index(name) for name in ("turn", "frames", "lives", "over"))
RNG_BYTES = 12  # with which an agent begins: its seed, and how many numbers it has drawn
PICTURES = 2  # that frames alternate between


class OneConsole(Consoles):
    """One console on a CPU, which is equal to ALE's.

    Args:
        game: ALE's name of a game.
        rom: a ROM file to play instead of ale-py's.
        compile_rom: compile the game's code; see :class:`Consoles`.

    Raises:
        EmulatorError: the game is unknown, its ROM cannot be read, or Warp cannot compile the kernel.

    Attributes:
        memory: ``(128,) uint8``, a view that changes with every frame.
        frame_number: frames since :meth:`load`, as ALE counts them.
    """

    def __init__(self, game: str, rom: Path | None = None, compile_rom: bool = False):
        super().__init__(game, 1, rom=rom, compile_rom=compile_rom)
        self.frame_number, self._limit = 0, NO_LIMIT
        self._default_mode: Game = self.game
        self._bytes: np.ndarray = self._state.numpy()[0]
        self.memory: np.ndarray = self._bytes[:128]
        self._fields = memoryview(self._bytes[MEMORY_BYTES : MEMORY_BYTES + 4 * len(FIELDS)].view(np.int32))
        self._action = memoryview(self._actions.numpy())
        self._both_pictures: np.ndarray = self._screens.numpy()[0][:PICTURES]
        self._answers_of_host: np.ndarray = self._answers.numpy()[0]
        self._rgb, self._gray = (
            Pictures(self._state, self._screens, colors)
            for colors in (palette(self.game.pal), gray_levels(self.game.pal)[:, None])
        )
        self._rgb_pixels: np.ndarray = self._rgb.array.numpy()[0]
        self._gray_pixels: np.ndarray = self._gray.array.numpy()[0, ..., 0]
        self._answer = memoryview(self._answers_of_host)
        self._prepared = 0  # frames that the recorded launch plays; 0 if another order came last

    def load(self, seed: int, repeat_action_probability: float, max_episode_frames: int) -> None:
        """Switch the console on, and start the game at its default mode.

        Args:
            seed: of repeated actions, from 0 to 2**64 - 1.
            repeat_action_probability: probability that a frame repeats the action of the previous one.
            max_episode_frames: time limit of a game in frames; 0 means none.
        """
        self._limit = max_episode_frames or NO_LIMIT
        self._settings.numpy()[:] = play_settings(repeat_action_probability, self._limit)
        self._seeds.numpy()[0] = seed
        self.choose(None, None)
        self._mask.fill_(1)
        self._order(kernels.LOAD)
        self.frame_number = self.episode_frame_number

    def choose(self, mode: int | None, difficulty: int | None) -> None:
        """Choose the mode and difficulty of the next :meth:`start`; ``None`` means the default.

        Raises:
            EmulatorError: the game has no such mode or difficulty.
        """
        chosen = self._default_mode.at(mode, difficulty)
        script = np.array(chosen.script, np.int32).reshape(-1)
        self.game = chosen
        self._facts.numpy()[:] = chosen.facts
        self._script.numpy()[: len(script)] = script

    def start(self) -> None:
        """Start the next game."""
        self._order(kernels.START)
        self.frame_number += self.episode_frame_number

    def play(self, action: int, frames: int) -> int:
        """Play frames until the game ends or its time is up, and draw the last one.

        Args:
            action: ALE's number of an action; other numbers count as NOOP.

        Returns:
            Points of all these frames.
        """
        fields, before = self._fields, self._fields[FRAMES]
        self._action[0] = action
        if frames == self._prepared and self._translation is None and self._given:  # empty with new launches
            self._launches[0].launch()
        else:
            self._run(kernels.PLAY, frames, 1)
            self._prepared = frames
        self.frame_number += fields[FRAMES] - before
        return self._answer[kernels.POINTS]

    @property
    def episode_frame_number(self) -> int:
        """Frames of this game, as ALE counts them."""
        return self._fields[FRAMES]

    @property
    def lives_left(self) -> int:
        """Lives in this game; 0 in a game without lives."""
        return self._fields[LIVES]

    @property
    def is_over(self) -> bool:
        """Whether the game is over."""
        return self._fields[OVER] != 0

    @property
    def is_out_of_time(self) -> bool:
        """Whether the time limit has been reached."""
        return self._fields[FRAMES] >= self._limit

    def colors(self) -> np.ndarray:
        """Newest picture as colour numbers, ``(rows, 160) uint8``, a view."""
        newest: np.ndarray = self._both_pictures[self._fields[TURN]]
        return newest

    def red_green_blue(self) -> np.ndarray:
        """Newest picture, ``(rows, 160, 3) uint8``, a view that the next call overwrites."""
        self._rgb.update()
        return self._rgb_pixels

    def gray(self) -> np.ndarray:
        """Newest picture in gray levels, ``(rows, 160) uint8``, a view that the next call overwrites."""
        self._gray.update()
        return self._gray_pixels

    def save(self, with_rng: bool) -> bytes:
        """State of the console with its pictures.

        Args:
            with_rng: with the random numbers of repeated actions; without, zeros stand for them.
        """
        console = self._bytes.copy()
        if not with_rng:
            console[self._agent_at : self._agent_at + RNG_BYTES] = 0
        return b"".join(array.tobytes() for array in (console, self._answers_of_host, self._both_pictures))

    @property
    def saved_size(self) -> int:
        """Bytes that :meth:`save` returns."""
        return int(self._bytes.nbytes + self._answers_of_host.nbytes + self._both_pictures.nbytes)

    def restore(self, saved: bytes, with_rng: bool) -> None:
        """Continue from the result of :meth:`save`."""
        given, at = np.frombuffer(saved, np.uint8), self._bytes.nbytes
        rng = slice(self._agent_at, self._agent_at + RNG_BYTES)
        kept = self._bytes[rng].copy()
        self._bytes[:] = given[:at]
        if not with_rng:
            self._bytes[rng] = kept
        answer = self._answers_of_host
        answer[:] = given[at : at + answer.nbytes].view(answer.dtype)
        self._both_pictures[:] = given[at + answer.nbytes :].reshape(self._both_pictures.shape)

    @property
    def version(self) -> str:
        """Hash of the emulator's sources, the ROM and the rules, which a saved state belongs to."""
        return self._version

    def _order(self, order: int) -> None:
        self._prepared = 0
        self._run(order)
