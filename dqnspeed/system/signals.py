"""Ctrl-C, SIGTERM and a terminal that is closed: they end a run, and child processes ignore them."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import popen_fork, resource_tracker
from types import FrameType
from typing import Any

# By which a cluster says that it needs the machine; they end a run where a launcher listens to them.
PREEMPTING = (signal.SIGUSR1, signal.SIGUSR2)
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOPPING = {one.name: 128 + one for one in (*ENDING, *PREEMPTING)}  # and their exit codes

TOGETHER_S = 0.1


def endings() -> list[signal.Signals]:
    """Those of :data:`ENDING` that are listened to: nohup asks that a closed terminal end nothing."""
    return [one for one in ENDING if one is not signal.SIGHUP or signal.getsignal(one) is not signal.SIG_IGN]


class Remembering:
    """A handler that stores a signal in ``received``, as of a :class:`StopSignals` that is entered after it."""

    received: signal.Signals | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)


class StopSignals:
    """Stores the first SIGINT, SIGTERM, SIGHUP or signal of a cluster in ``received``, or what a :class:`Remembering`
    heard before it was entered; restores the old handlers on exit.

    A second Ctrl-C raises :class:`KeyboardInterrupt` at once; one that follows within ``TOGETHER_S`` is the same, as
    ``timeout -s INT`` sends it to a process, and to its group with it.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._heard = 0.0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (*endings(), *filter(_is_heard, PREEMPTING)):
                if signal.getsignal(number) is not None:  # else another language's, which could not be put back
                    self._before[number] = signal.signal(number, self._receive)
        for handler in self._before.values():
            if isinstance(handler, Remembering) and self.received is None:
                self.received, self._heard = handler.received, time.monotonic()
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            if time.monotonic() - self._heard < TOGETHER_S:
                return
            raise KeyboardInterrupt
        self.received, self._heard = signal.Signals(number), time.monotonic()


def _is_heard(number: signal.Signals) -> bool:
    return callable(signal.getsignal(number))


@contextlib.contextmanager
def handlers_kept() -> Iterator[None]:
    """What a library does inside changes none of this process' handlers of signals."""
    before = {number: signal.getsignal(number) for number in (*ENDING, *PREEMPTING)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                if handler is not None:
                    signal.signal(number, handler)  # also where Python knows of no other: it may be C's


def kill_for_terminate() -> Callable[[], None]:
    """From now on ``terminate()`` of a process that this one has started is SIGKILL, as where a user's environment
    starts some: they inherit that SIGTERM does not come. Returns what takes that back."""
    started: list[Any] = [popen_fork.Popen, subprocess.Popen]
    before = [kind.terminate for kind in started]
    for kind in started:
        kind.terminate = kind.kill

    def as_before() -> None:
        for kind, terminate in zip(started, before, strict=True):
            kind.terminate = terminate

    return as_before


@contextlib.contextmanager
def children_ignore_signals() -> Iterator[None]:
    """Processes started inside receive neither Ctrl-C, SIGTERM, SIGHUP nor the signals of a cluster, which may come to
    all processes of a job: the learner ends a run, and saves their state.

    They inherit blocked signals; in this process the signals are delayed until the end of the block. ``terminate()``
    of such a process becomes SIGKILL, since SIGTERM would not end it (multiprocessing's exit handler waits for it).
    """
    resource_tracker.ensure_running()  # if it started with the first child, it would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*ENDING, *PREEMPTING})
    others = multiprocessing.active_children()
    as_before = kill_for_terminate()
    try:
        yield
    finally:
        as_before()
        for child in set(multiprocessing.active_children()).difference(others):
            started: Any = child
            started._popen.terminate = started._popen.kill
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
