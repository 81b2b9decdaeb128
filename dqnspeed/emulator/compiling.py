"""Kernels that Warp compiles, and keeps for whoever comes next."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import warp as wp

from dqnspeed.emulator.games import EmulatorError


def compiled(kernel: Any, launch: Callable[[], Any]) -> Any:
    """What ``launch`` prepares, for which ``kernel`` is compiled, or what Warp kept of it is loaded.

    What a full disk or a power cut has left of that is thrown away.

    Raises:
        EmulatorError: it cannot be compiled.
    """
    with _in_turn():
        try:
            return launch()
        except Exception:
            begin, hexadecimal = f"wp_{kernel.module.name}_", "[0-9a-f]" * 7  # other names are of what is being made
            for kept in Path(wp.config.kernel_cache_dir).glob(begin + hexadecimal):
                shutil.rmtree(kept, ignore_errors=True)
        kernel.module.mark_modified()  # else it would fail as it did
        try:
            return launch()
        except Exception as error:
            reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
            raise EmulatorError(
                f"Warp cannot compile it ({reason}); it keeps files in {wp.config.kernel_cache_dir}, and "
                f"WARP_CACHE_PATH names another folder."
            ) from error


@contextlib.contextmanager
def _in_turn() -> Iterator[None]:
    """Of processes that start together one compiles, and the others load what it made."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # what cannot be written says so later; not every file system has locks
            folder = Path(wp.config.kernel_cache_dir)
            folder.mkdir(parents=True, exist_ok=True)
            fcntl.flock(held.enter_context((folder / "dqnspeed.lock").open("w")), fcntl.LOCK_EX)
        yield
