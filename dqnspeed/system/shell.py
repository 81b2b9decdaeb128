"""Commands as a shell takes them here."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def command(name: str, *arguments: str) -> str:
    """``python -m dqnspeed.NAME ARGUMENT...``, with this interpreter's path where ``python`` is another or none."""
    return shlex.join([_python(), "-m", f"dqnspeed.{name}", *arguments])


def _python() -> str:
    here, found = Path(sys.executable), shutil.which("python")
    if not sys.executable or (found and Path(found).parent == here.parent and Path(found).samefile(here)):
        return "python"
    # Not resolved: in a virtual environment it is a link, and its own path is what chooses the environment.
    return str(here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here)
