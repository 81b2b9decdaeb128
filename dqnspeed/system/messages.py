"""Short texts for messages: an error in one line, and commands as the user's shell takes them."""

from __future__ import annotations

import shlex
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

try:
    __version__ = version("dqnspeed")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+source"

FOREIGN = Exception, SystemExit, GeneratorExit  # errors of a user's code; Ctrl-C is none


def about() -> str:
    """The versions of dqnspeed, Hydra and torch."""
    return f"dqnspeed {__version__} (hydra {version('hydra-core')}, torch {version('torch')})"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if the message is empty."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")


def kind_and_line(error: BaseException) -> str:
    """The type of an error and the first line of its message."""
    kind, line = type(error).__name__, first_line(error)
    return kind if line == kind else f"{kind}: {line}"


def command(name: str, *arguments: str) -> str:
    """``python -m dqnspeed.NAME ARGUMENT...`` for this shell; with a path if ``python`` is another interpreter."""
    return shlex.join([_python(), "-m", f"dqnspeed.{name}", *arguments])


def _python() -> str:
    here, found = Path(sys.executable), shutil.which("python")
    if not sys.executable or (found and Path(found).parent == here.parent and Path(found).samefile(here)):
        return "python"
    # A virtual environment's interpreter is a link whose own path chooses the environment, so it is not resolved.
    return str(here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here)
