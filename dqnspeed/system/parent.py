"""Child processes: how they start, and their end when the parent is killed."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import threading

START_METHOD = "spawn"  # of actor and worker processes: CUDA and threads do not survive a fork


def end_with_parent() -> None:
    """From now on this process of :mod:`multiprocessing` ends at once with its parent, whatever it waits for.

    It may wait for what only the parent could give it: a lock that was held when the parent was killed.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.sentinel,), name="end-with-parent", daemon=True).start()


def may_have_children() -> None:
    """Let this process start others, as a user's environment may, though its parent kills it when it ends itself."""
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]


def _end_after(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
