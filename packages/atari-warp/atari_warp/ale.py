"""ALE as the reference that the emulator is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def make_ale(game: str, mode: int | None = None, difficulty: int | None = None, rom: Path | None = None) -> Any:
    """Return an ``ALEInterface`` at the first frame of a game, without sticky actions.

    Args:
        rom: a ROM file to load instead of ale-py's.
    """
    from ale_py import ALEInterface, LoggerMode, roms

    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(rom or roms.get_rom_path(game))  # at its default mode
    if mode is not None:
        ale.setMode(mode)
    if difficulty is not None:
        ale.setDifficulty(difficulty)
    if mode is not None or difficulty is not None:
        ale.reset_game()
    return ale


def ale_action(number: int) -> Any:
    """Return ALE's action of this number."""
    from ale_py import Action

    return Action(number)
