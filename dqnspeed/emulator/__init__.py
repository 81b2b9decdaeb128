"""An Atari 2600 that plays many games at once, equal to ALE frame by frame; it needs nothing else of dqnspeed."""

from dqnspeed.emulator.emulator import Emulator, palette
from dqnspeed.emulator.games import EmulatorError, Game, known_games

__all__ = ["Emulator", "EmulatorError", "Game", "known_games", "palette"]
