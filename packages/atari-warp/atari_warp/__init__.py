"""Atari 2600 emulator that plays many games at once, equal to ALE frame by frame."""

import sys

try:
    from atari_warp import kernels as kernels
except (OSError, RuntimeError, AttributeError) as error:  # the last from a Warp that is too old
    sentence = f"atari_warp: Warp does not start here ({error}); WARP_CACHE_PATH names the folder for what it keeps."
    # While Python looks for a module that it was started with, that is all its first argument says.
    is_command = sys.argv[:1] == ["-m"] and any(argument.startswith(__name__) for argument in sys.orig_argv)
    raise (SystemExit(sentence) if is_command else ImportError(sentence)) from error

from atari_warp.colors import palette
from atari_warp.emulator import Emulator, has_cuda
from atari_warp.games import ACTIONS, EmulatorError, Game, find, known_games
from atari_warp.preprocessing import Games, Preprocessing

__all__ = [
    "ACTIONS", "Emulator", "EmulatorError", "Game", "Games", "Preprocessing", "find", "has_cuda", "known_games",
    "palette",
]  # fmt: skip
