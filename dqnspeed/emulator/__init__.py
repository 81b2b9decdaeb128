"""An Atari 2600 that plays many games at once, equal to ALE frame by frame; it needs nothing else of dqnspeed."""

import importlib.util
import sys


def _refusal(sentence: str) -> BaseException:
    # While Python looks for a module that it was started with, that is all its first argument says.
    ours = sys.argv[:1] == ["-m"] and any(argument.startswith(__name__) for argument in sys.orig_argv)
    return SystemExit(sentence) if ours else ImportError(sentence)


if importlib.util.find_spec("warp") is None:
    raise _refusal("dqnspeed.emulator: needs Warp; pip install 'dqnspeed[emulator]' brings it.")
try:
    from dqnspeed.emulator import kernels as kernels
except (OSError, RuntimeError, AttributeError) as error:  # the last from a Warp that is too old
    raise _refusal(
        f"dqnspeed.emulator: Warp does not start here ({error}); WARP_CACHE_PATH names the folder for what it keeps."
    ) from error

from dqnspeed.emulator.colors import palette  # noqa: E402
from dqnspeed.emulator.emulator import Emulator, has_cuda  # noqa: E402
from dqnspeed.emulator.games import ACTIONS, EmulatorError, Game, find, known_games  # noqa: E402
from dqnspeed.emulator.preprocessing import Games, Preprocessing  # noqa: E402

__all__ = [
    "ACTIONS", "Emulator", "EmulatorError", "Game", "Games", "Preprocessing", "find", "has_cuda", "known_games",
    "palette",
]  # fmt: skip
