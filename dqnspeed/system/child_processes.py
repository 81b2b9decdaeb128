"""Child processes: how they start, which signals reach them, and their end when the parent is killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from multiprocessing import popen_fork, resource_tracker
from typing import Any

from dqnspeed.system.signals import ENDING, PREEMPTING

START_METHOD = "spawn"  # of actor and worker processes: CUDA and threads do not survive a fork


@contextlib.contextmanager
def children_ignore_signals() -> Iterator[None]:
    """Block the signals that end a run in all processes started in the block.

    A terminal or a cluster may send a signal to all processes of a job, but the learner ends a run and saves the state
    of its actors. Children inherit blocked signals; this process receives them after the block. ``terminate()`` of
    such a child becomes SIGKILL, because SIGTERM is blocked and multiprocessing's exit handler waits for the child.
    """
    resource_tracker.ensure_running()  # if it started with the first child, it would unblock the signals
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*ENDING, *PREEMPTING})
    others = multiprocessing.active_children()
    restore = terminate_by_kill()
    try:
        yield
    finally:
        restore()
        for child in set(multiprocessing.active_children()).difference(others):
            started: Any = child
            started._popen.terminate = started._popen.kill
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def terminate_by_kill() -> Callable[[], None]:
    """Make ``terminate()`` of child processes send SIGKILL, since children inherit that SIGTERM is blocked.

    Returns:
        A function that restores ``terminate()``.
    """
    classes: list[Any] = [popen_fork.Popen, subprocess.Popen]
    methods = [one.terminate for one in classes]
    for one in classes:
        one.terminate = one.kill

    def restore() -> None:
        for one, terminate in zip(classes, methods, strict=True):
            one.terminate = terminate

    return restore


def end_with_parent() -> None:
    """End this process of :mod:`multiprocessing` at once when its parent ends, whatever it waits for.

    Otherwise it could wait forever, for example for a lock held by a killed parent.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.sentinel,), name="end-with-parent", daemon=True).start()


def may_have_children() -> None:
    """Let this daemonic process start children, as a user's environment may."""
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]


def _end_after(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
