"""ALE's interface to one game, played by the emulator."""

from __future__ import annotations

import difflib
import os
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import gymnasium
import numpy as np

from atari_warp.ale_state import ALEState
from atari_warp.games import EmulatorError, UnknownGameError, find_game, known_games
from atari_warp.one_console import OneConsole

if TYPE_CHECKING:
    from atari_warp.window import Window

# Settings of ALE with their defaults.
INTEGERS = {
    "random_seed": -1, "max_num_frames": 0, "max_num_frames_per_episode": 0, "frame_skip": 1,
    "system_random_seed": 4753849, "fragsize": 64,
}  # fmt: skip
FLOATS = {"repeat_action_probability": 0.25}
BOOLEANS = {
    "display_screen": False, "sound": False, "sound_obs": False, "color_averaging": False,
    "truncate_on_loss_of_life": False, "restricted_action_set": False, "send_rgb": False,
}  # fmt: skip
STRINGS = {"record_screen_dir": "", "record_sound_filename": "", "rom_file": "", "cpu": "low"}
REFUSED = {
    "sound": "the emulator has no sound",
    "sound_obs": "the emulator has no sound",
    "color_averaging": "pictures are not averaged",
    "truncate_on_loss_of_life": "a lost life does not end a game",
    "record_screen_dir": "pictures are not recorded. Use gymnasium.wrappers.RecordVideo",
    "record_sound_filename": "the emulator has no sound",
    "max_num_frames": "only games have a limit. Use max_num_frames_per_episode",
}
RAM_BYTES = 128


class ALEInterface:
    """One game, with the methods of ``ale_py.ALEInterface``.

    Unlike ALE's, a saved state also holds the picture. There is no sound.

    Args:
        compile_rom: compile the game's code for more frames per second; until that is done, the code is interpreted.

    Example:
        >>> ale = ALEInterface()
        >>> ale.setFloat("repeat_action_probability", 0.0)
        >>> ale.loadROM("pong")
        >>> ale.act(0)
        0
    """

    def __init__(self, compile_rom: bool = True):
        self._settings: dict[str, Any] = {**INTEGERS, **FLOATS, **BOOLEANS, **STRINGS}
        self._compile_rom = compile_rom
        self._loaded: tuple[str, Path | None] | None = None
        self._console: OneConsole | None = None
        self._window: Window | None = None
        self._mode, self._difficulty = 0, 0
        self._frame_skip, self._shows = 1, False
        # A forked child has no threads of its parent; the number of the process is 0 once closed.
        self._owner = os.getpid()

    # --- ROM ---------------------------------------------------------------------------------------------------------

    def loadROM(self, rom: str | os.PathLike[str]) -> None:
        """Load a ROM, and start its game at the default mode with the present settings.

        Args:
            rom: ALE's name of a game, or the path of a ROM with the name of a game, such as ``pong.bin``.

        Raises:
            UnknownGameError: the game is unknown.
            EmulatorError: the ROM or a setting cannot be used.
        """
        if not isinstance(rom, (str, os.PathLike)):
            raise TypeError(f"rom={rom!r}: must be the name of a game or the path of a ROM.")
        for name, reason in REFUSED.items():
            if self._settings[name]:
                raise EmulatorError(f"{name}={self._settings[name]}: {reason}.")
        game = Path(rom).stem
        path: Path | None = None if rom == game else Path(rom)
        if path is not None and not path.is_file():
            raise EmulatorError(f"rom={os.fspath(rom)}: there is no such file.")
        check_known(game)
        if path is not None and path == _path_of(game):
            path = None
        if self._loaded != (game, path):
            self._console = OneConsole(game, path, self._compile_rom)
            self._loaded = game, path
        seed = self._settings["random_seed"]
        if seed < 0:  # as in ALE: another one each time
            seed = int.from_bytes(os.urandom(4), "little")
        self._at_hand().load(
            seed, self._settings["repeat_action_probability"], self._settings["max_num_frames_per_episode"]
        )
        facts = find_game(game)
        self._mode, self._difficulty = next(iter(facts.modes)), facts.difficulties[0]
        self._frame_skip, self._shows = self._settings["frame_skip"], self._settings["display_screen"]
        if self._shows:
            self._show()

    def wait_until_compiled(self) -> None:
        """Wait until the game's code is compiled, as before a measurement."""
        self._at_hand().wait_until_compiled()

    @staticmethod
    def isSupportedROM(rom: str | os.PathLike[str]) -> str | None:
        """Return the name of the game that a ROM of ale-py holds, or ``None``.

        Raises:
            RuntimeError: there is no such file.
        """
        if not Path(rom).is_file():
            raise RuntimeError(f"rom={os.fspath(rom)}: there is no such file.")
        given = Path(rom).read_bytes()
        same = (game for game in known_games() if (path := _path_of(game)) and path.read_bytes() == given)
        return next(same, None)

    # --- frames ------------------------------------------------------------------------------------------------------

    def act(self, action: Any, paddle_strength: float = 1.0) -> int:
        """Play ``frame_skip`` frames with an action, unless the game is over or its time is up.

        Args:
            action: an ``ale_py.Action`` or its number; other numbers count as NOOP.
            paddle_strength: must be 1.0.

        Returns:
            Points.

        Raises:
            TypeError: the action is no integer.
            EmulatorError: the paddle strength is not 1.0.
            RuntimeError: no ROM was loaded.
        """
        if paddle_strength != 1.0:
            raise EmulatorError(f"paddle_strength={paddle_strength}: continuous actions are not supported. Use 1.0.")
        return self.play(getattr(action, "value", action), self._frame_skip)

    def play(self, action: int, frames: int) -> int:
        """Play a number of frames with an action's number, as :meth:`act` does."""
        console = self._console
        if console is None or self._owner != os.getpid():
            console = self._at_hand()
        try:
            if not self._shows:
                return console.play(action, frames)
            points = 0
            for _ in range(frames):
                points += console.play(action, 1)
                self._show()
            return points
        except TypeError as error:
            raise TypeError(f"action={action!r}: must be an integer.") from error
        except ValueError:  # a number of more than 32 bits
            return console.play(0, frames)

    def reset_game(self) -> None:
        """Start the next game at the chosen mode and difficulty."""
        self._at_hand().start()
        if self._shows:
            self._show()

    def game_over(self, *, with_truncation: bool = True) -> bool:
        """Whether the game is over, or its time is up if ``with_truncation``."""
        console = self._console or self._at_hand()
        return console.is_over or (with_truncation and console.is_out_of_time)

    def game_truncated(self) -> bool:
        """Whether the time of the game is up."""
        return (self._console or self._at_hand()).is_out_of_time

    def lives(self) -> int:
        """Lives that are left; 0 in games without lives."""
        return (self._console or self._at_hand()).lives_left

    def getFrameNumber(self) -> int:
        """Frames since the ROM was loaded."""
        return (self._console or self._at_hand()).frame_number

    def getEpisodeFrameNumber(self) -> int:
        """Frames of this game."""
        return (self._console or self._at_hand()).episode_frame_number

    # --- actions, modes and difficulties -----------------------------------------------------------------------------

    def getLegalActionSet(self) -> list[Any]:
        """Actions that this game takes, in most games all 18, as ``ale_py.Action``."""
        return _actions(self._at_hand().game.legal)

    def getMinimalActionSet(self) -> list[Any]:
        """Actions that have an effect in this game, as ``ale_py.Action``."""
        return _actions(self._at_hand().game.minimal)

    def getAvailableModes(self) -> list[int]:
        """ALE's numbers of the modes of this game."""
        return sorted(self._facts().modes)

    def getAvailableDifficulties(self) -> list[int]:
        """ALE's numbers of the difficulties of this game."""
        return sorted(self._facts().difficulties)

    def setMode(self, mode: int) -> None:
        """Choose the mode of the next game.

        Raises:
            RuntimeError: the game has no such mode.
        """
        self._choose(_integer("mode", mode), self._difficulty)

    def setDifficulty(self, difficulty: int) -> None:
        """Choose the difficulty of the next game.

        Raises:
            RuntimeError: the game has no such difficulty.
        """
        self._choose(self._mode, _integer("difficulty", difficulty))

    def _choose(self, mode: int, difficulty: int) -> None:
        try:
            self._at_hand().choose(mode, difficulty)
        except EmulatorError as error:
            raise RuntimeError(str(error)) from error
        self._mode, self._difficulty = mode, difficulty

    # --- memory and pictures -----------------------------------------------------------------------------------------

    def getRAMSize(self) -> int:
        """Bytes of memory."""
        return RAM_BYTES

    @overload
    def getRAM(self) -> np.ndarray: ...
    @overload
    def getRAM(self, buffer: np.ndarray) -> None: ...
    def getRAM(self, buffer: np.ndarray | None = None) -> np.ndarray | None:
        """Memory, ``(128,) uint8``, as a copy or into a buffer."""
        return _copied("getRAM", self._at_hand().memory, buffer)

    def setRAM(self, index: int, value: int) -> None:
        """Write a byte of the memory.

        Raises:
            RuntimeError: the index is above 127.
            TypeError: the index is negative, or the value is no integer from 0 to 255.
        """
        if not isinstance(value, (int, np.integer)) or not 0 <= value <= 255:
            raise TypeError(f"value={value}: must be an integer from 0 to 255.")
        if not isinstance(index, (int, np.integer)) or index < 0:
            raise TypeError(f"index={index}: must be an integer from 0 to 127.")
        if index >= RAM_BYTES:
            raise RuntimeError(f"index={index}: must be an integer from 0 to 127.")
        self._at_hand().memory[index] = value

    def getScreenDims(self) -> tuple[int, int]:
        """Rows and columns of the picture."""
        return self._at_hand().game.rows, 160

    @overload
    def getScreen(self) -> np.ndarray: ...
    @overload
    def getScreen(self, buffer: np.ndarray) -> None: ...
    def getScreen(self, buffer: np.ndarray | None = None) -> np.ndarray | None:
        """Picture as colour numbers of the console, ``(rows, 160) uint8``, as a copy or into a buffer."""
        return _copied("getScreen", self._at_hand().colors(), buffer)

    @overload
    def getScreenRGB(self) -> np.ndarray: ...
    @overload
    def getScreenRGB(self, buffer: np.ndarray) -> None: ...
    def getScreenRGB(self, buffer: np.ndarray | None = None) -> np.ndarray | None:
        """Picture, ``(rows, 160, 3) uint8``, as a copy or into a buffer."""
        return _copied("getScreenRGB", self._at_hand().red_green_blue(), buffer)

    @overload
    def getScreenGrayscale(self) -> np.ndarray: ...
    @overload
    def getScreenGrayscale(self, buffer: np.ndarray) -> None: ...
    def getScreenGrayscale(self, buffer: np.ndarray | None = None) -> np.ndarray | None:
        """Picture in gray levels, ``(rows, 160) uint8``, as a copy or into a buffer."""
        return _copied("getScreenGrayscale", self._at_hand().gray(), buffer)

    def saveScreenPNG(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a PNG file."""
        pixels = self._at_hand().red_green_blue()
        rows, columns = pixels.shape[:2]
        lines = np.zeros((rows, 1 + 3 * columns), np.uint8)  # each line begins with the number of its filter
        lines[:, 1:] = pixels.reshape(rows, -1)
        parts = [
            (b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)),
            (b"IDAT", zlib.compress(lines.tobytes())),
            (b"IEND", b""),
        ]
        chunks = [
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in parts
        ]
        Path(path).write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))

    def getAudio(self, buffer: Any = None) -> Any:
        """Refuse: the emulator has no sound."""
        raise EmulatorError("getAudio: the emulator has no sound. Use ale_py for games with sound.")

    def getAudioSize(self) -> int:
        """Refuse: the emulator has no sound."""
        raise EmulatorError("getAudioSize: the emulator has no sound. Use ale_py for games with sound.")

    # --- states ------------------------------------------------------------------------------------------------------

    def cloneState(self, *, include_rng: bool = False) -> ALEState:
        """Return the state of the game.

        Args:
            include_rng: with the random numbers of repeated actions.
        """
        console = self._at_hand()
        frames = console.frame_number, console.episode_frame_number
        return ALEState.of(
            console.save(include_rng), console.version, self._mode, self._difficulty, frames, include_rng
        )

    def restoreState(self, state: ALEState) -> None:
        """Continue from a state of the same game.

        Raises:
            TypeError: the state is no :class:`ALEState` of this package.
            EmulatorError: the state is of another game, ROM or version of the emulator.
        """
        console = self._at_hand()
        if not isinstance(state, ALEState):
            raise TypeError(f"state: has type {type(state).__name__}, expected atari_warp.ALEState.")
        if state.version != console.version or len(state.console) != console.saved_size:
            raise EmulatorError("state: is of another game, ROM or version of the emulator.")
        self._choose(state.getCurrentMode(), state.getDifficulty())
        console.restore(state.console, state.with_rng)
        console.frame_number = state.getFrameNumber()

    def cloneSystemState(self) -> ALEState:
        """Return the state of the game with the random numbers of repeated actions."""
        return self.cloneState(include_rng=True)

    def restoreSystemState(self, state: ALEState) -> None:
        """Continue from a state of the same game; see :meth:`restoreState`."""
        self.restoreState(state)

    # --- settings ----------------------------------------------------------------------------------------------------

    def setInt(self, key: str, value: int) -> None:
        """Change a setting for the next :meth:`loadROM`."""
        self._set(INTEGERS, key, _integer(key, value))

    def setFloat(self, key: str, value: float) -> None:
        """Change a setting for the next :meth:`loadROM`."""
        if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
            raise TypeError(f"{key}={value!r}: must be a number.")
        self._set(FLOATS, key, float(value))

    def setBool(self, key: str, value: bool) -> None:
        """Change a setting for the next :meth:`loadROM`."""
        if not isinstance(value, (bool, np.bool_)):
            raise TypeError(f"{key}={value!r}: must be True or False.")
        if value and key in REFUSED:
            raise EmulatorError(f"{key}={value}: {REFUSED[key]}. Use ale_py, or leave it out.")
        self._set(BOOLEANS, key, bool(value))

    def setString(self, key: str, value: str) -> None:
        """Change a setting for the next :meth:`loadROM`."""
        if not isinstance(value, str):
            raise TypeError(f"{key}={value!r}: must be a string.")
        self._set(STRINGS, key, value)

    def getInt(self, key: str) -> int:
        """Return a setting, or -1 if there is none."""
        return int(self._settings[key]) if key in INTEGERS else -1

    def getFloat(self, key: str) -> float:
        """Return a setting, or -1.0 if there is none."""
        return float(self._settings[key]) if key in FLOATS else -1.0

    def getBool(self, key: str) -> bool:
        """Return a setting, or ``False`` if there is none."""
        return bool(self._settings[key]) if key in BOOLEANS else False

    def getString(self, key: str) -> str:
        """Return a setting, or an empty string if there is none."""
        return str(self._settings[key]) if key in STRINGS else ""

    @staticmethod
    def setLoggerMode(mode: Any) -> None:
        """Accept ALE's setting of its messages; there are none here."""

    def _set(self, known: dict[str, Any], key: str, value: Any) -> None:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise RuntimeError(f"key={key}: there is no such setting of type {type(value).__name__}.{hint}")
        self._settings[key] = value

    # --- process -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Free the console. Later calls raise an error."""
        if self._window is not None:
            self._window.close()
        self._console = self._window = self._loaded = None
        self._owner = 0

    def _at_hand(self) -> OneConsole:
        """The console, if it can be used in this process.

        Raises:
            gymnasium.error.ClosedEnvironmentError: after :meth:`close`.
            RuntimeError: no ROM was loaded, or this process is a forked child.
        """
        if self._owner == 0:
            raise gymnasium.error.ClosedEnvironmentError("The environment is closed. Make another one.")
        if self._owner != os.getpid():
            raise RuntimeError("The environment belongs to the parent of this process. Make another one here.")
        if self._console is None:
            raise RuntimeError("ROM not set. Call loadROM() first.")
        return self._console

    def _facts(self) -> Any:
        return find_game(self._at_hand().game.name)

    def _show(self) -> None:
        if self._window is None:
            from atari_warp.window import Window

            self._window = Window(self._at_hand().game.name)
        self._window.show(self._at_hand().red_green_blue())


def check_known(game: str) -> None:
    """Raise an error if the emulator cannot play a game, which names ALE if ALE has its ROM.

    Raises:
        UnknownGameError: the game is unknown.
    """
    if game not in known_games() and _path_of(game) is not None:
        raise UnknownGameError(f"game={game}: the emulator cannot play this game. Use ale_py, which has its ROM.")
    find_game(game)


def _path_of(game: str) -> Path | None:
    """Path of ale-py's ROM, or ``None``."""
    from ale_py import roms

    if game not in roms.get_all_rom_ids():
        return None
    try:
        return Path(roms.get_rom_path(game))
    except OSError:  # which the emulator reports
        return None


def _actions(numbers: Any) -> list[Any]:
    from ale_py import Action

    return [Action(number) for number in numbers]


def _integer(name: str, value: Any) -> int:
    if not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}={value!r}: must be an integer.")
    return int(value)


def _copied(method: str, values: np.ndarray, buffer: np.ndarray | None) -> np.ndarray | None:
    """Return a copy of ``values``, or copy ``values`` into ``buffer``."""
    if buffer is None:
        return values.copy()
    fits = isinstance(buffer, np.ndarray) and buffer.dtype == np.uint8 and buffer.flags.c_contiguous
    if fits and buffer.shape == values.shape:
        buffer[...] = values
        return None
    problem = (
        f"{method}(): incompatible function arguments. The following argument types are supported: a C-contiguous "
        f"array of shape {values.shape} and dtype uint8."
    )
    # As in ALE: pictures of another shape are an error of another type.
    raise RuntimeError(problem) if fits and values.ndim > 1 else TypeError(problem)
