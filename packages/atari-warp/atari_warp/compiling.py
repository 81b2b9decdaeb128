"""Kernels that Warp compiles, and keeps for whoever comes next."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import warp as wp

from atari_warp.games import EmulatorError

PATIENCE_S = 300.0  # for another process, which may have been stopped


def compiled(kernel: Any, launch: Callable[[], Any]) -> Any:
    """What ``launch`` prepares, for which ``kernel`` is compiled, or what Warp kept of it is loaded.

    What a full disk or a power cut has left of that is thrown away.

    Raises:
        EmulatorError: it cannot be compiled.
    """
    with _in_turn(kernel.module.name):
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
                f"WARP_CACHE_PATH={wp.config.kernel_cache_dir}: Warp cannot compile there ({reason}). Name another "
                f"folder if it cannot be written."
            ) from error


@contextlib.contextmanager
def _in_turn(module: str) -> Iterator[None]:
    """Of processes that start together one compiles this module, and the others load what it made."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # what cannot be written says so later; not every file system has locks
            folder = Path(wp.config.kernel_cache_dir)
            folder.mkdir(parents=True, exist_ok=True)
            _lock(held.enter_context((folder / f"{module}.lock").open("w")))
        yield


def _lock(file: IO[str]) -> None:
    """Lock it, or go on without after a while: two that compile the same do not harm each other.

    Raises:
        OSError: the file system has no locks.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return None
        time.sleep(0.05)
