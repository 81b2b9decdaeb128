"""Atari 2600 emulator that plays many games at once, equal to ALE frame by frame."""

import importlib
import sys
from typing import Any

try:
    from atari_warp import kernels as kernels
except (OSError, RuntimeError, AttributeError) as error:  # AttributeError: a Warp that is too old
    problem = f"atari_warp: Warp does not start ({error}). WARP_CACHE_PATH can name another folder for its kernels."
    # While Python looks for a module that it was started with, sys.argv has nothing but "-m".
    is_command = sys.argv[:1] == ["-m"] and any(argument.startswith(__name__) for argument in sys.orig_argv)
    raise (SystemExit(problem) if is_command else ImportError(problem)) from error

from atari_warp.ale_interface import ALEInterface
from atari_warp.ale_state import ALEState
from atari_warp.console_batch import ConsoleBatch
from atari_warp.console_data import palette
from atari_warp.consoles import has_cuda
from atari_warp.emulator import Emulator
from atari_warp.env import AtariEnv
from atari_warp.games import ACTIONS, EmulatorError, Game, check_playable, find_game, known_games
from atari_warp.preprocessing import Preprocessing
from atari_warp.registration import register_envs
from atari_warp.vector_env import AtariVectorEnv

__all__ = [
    "ACTIONS", "ALEInterface", "ALEState", "AtariEnv", "AtariVectorEnv", "ConsoleBatch", "Emulator", "EmulatorError",
    "Game", "Preprocessing", "check_playable", "find_game", "has_cuda", "known_games", "palette",
]  # fmt: skip

register_envs()


def __getattr__(name: str) -> Any:
    """Import ``atari_warp.sb3``, and Stable-Baselines3 with it, when it is first used."""
    if name == "sb3":
        return importlib.import_module("atari_warp.sb3")
    raise AttributeError(f"module {__name__} has no attribute {name}.")
