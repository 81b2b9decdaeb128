"""An Atari 2600 that plays many games at once, equal to ALE frame by frame; it needs nothing else of dqnspeed."""

import importlib.util
import sys

if importlib.util.find_spec("warp") is None:
    MISSING = "dqnspeed.emulator: needs Warp; pip install 'dqnspeed[emulator]' brings it."
    # While Python looks for a module that it was started with, that is all its first argument says.
    raise SystemExit(MISSING) if sys.argv[:1] == ["-m"] else ImportError(MISSING)

from dqnspeed.emulator.emulator import Emulator, palette
from dqnspeed.emulator.games import ACTIONS, EmulatorError, Game, find, known_games
from dqnspeed.emulator.preprocessing import Games, Preprocessing

__all__ = ["ACTIONS", "Emulator", "EmulatorError", "Game", "Games", "Preprocessing", "find", "known_games", "palette"]
