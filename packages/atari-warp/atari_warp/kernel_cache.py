"""Kernels that Warp compiles, kept on disk for later processes."""

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

LOCK_TIMEOUT_S = 300.0  # another process that holds the lock may have been stopped


def compiled(kernel: Any, launch: Callable[[], Any]) -> Any:
    """Return ``launch()``, which compiles ``kernel`` or loads it from Warp's cache.

    Cached files that a full disk or a power cut has damaged are deleted and compiled again.

    Raises:
        EmulatorError: the kernel cannot be compiled.
    """
    with _exclusive(kernel.module.name):
        try:
            return launch()
        except Exception:
            begin, hexadecimal = f"wp_{kernel.module.name}_", "[0-9a-f]" * 7  # other names are being written
            for folder in Path(wp.config.kernel_cache_dir).glob(begin + hexadecimal):
                shutil.rmtree(folder, ignore_errors=True)
        kernel.module.mark_modified()  # otherwise Warp remembers the failure
        try:
            return launch()
        except Exception as error:
            reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
            raise EmulatorError(
                f"WARP_CACHE_PATH={wp.config.kernel_cache_dir}: Warp cannot compile there ({reason}). Choose a folder "
                f"that can be written."
            ) from error


@contextlib.contextmanager
def _exclusive(module: str) -> Iterator[None]:
    """Let one of several processes compile a module; the others wait and load the result."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # a folder that cannot be written is reported later; locks are optional
            folder = Path(wp.config.kernel_cache_dir)
            folder.mkdir(parents=True, exist_ok=True)
            _lock(held.enter_context((folder / f"{module}.lock").open("w")))
        yield


def _lock(file: IO[str]) -> None:
    """Lock a file, or return without a lock after a timeout: compiling twice does no harm.

    Raises:
        OSError: the file system has no locks.
    """
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return None
        time.sleep(0.05)
