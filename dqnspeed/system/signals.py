"""Signals that end a run: Ctrl-C, SIGTERM, a closed terminal, and the signals of a cluster."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

PREEMPTING = (signal.SIGUSR1, signal.SIGUSR2)  # sent by a cluster that needs the machine
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_CODES = {one.name: 128 + one for one in (*ENDING, *PREEMPTING)}

REPEAT_S = 0.1  # a second Ctrl-C within this time is the same one


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9; a real-time signal has a number only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ending_signals() -> list[signal.Signals]:
    """The signals of :data:`ENDING` to handle; without SIGHUP under nohup, which keeps a run without a terminal."""
    return [one for one in ENDING if one is not signal.SIGHUP or signal.getsignal(one) is not signal.SIG_IGN]


def interrupt_on_signals() -> None:
    """Let every signal of :data:`ENDING` raise :class:`KeyboardInterrupt`, whose argument is the signal."""
    for number in ending_signals():
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt(signal.Signals(number))


class SignalRecorder:
    """A handler that stores the latest signal in ``received``, for a :class:`StopSignals` that is entered later."""

    received: signal.Signals | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)


class StopSignals:
    """Stores the first signal that ends a run in ``received``, and restores the former handlers on exit.

    A signal that an earlier :class:`SignalRecorder` stored counts too. Signals of a cluster count where a launcher
    handles them. A second Ctrl-C raises :class:`KeyboardInterrupt` at once. Within ``REPEAT_S`` it counts as the first
    one, because ``timeout -s INT`` sends it to a process and to its group.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._received_at = 0.0
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            handled = [one for one in PREEMPTING if callable(signal.getsignal(one))]
            for number in (*ending_signals(), *handled):
                if signal.getsignal(number) is not None:  # else a handler in C, which Python could not restore
                    self._handlers[number] = signal.signal(number, self._receive)
        for handler in self._handlers.values():
            if isinstance(handler, SignalRecorder) and self.received is None:
                self.received, self._received_at = handler.received, time.monotonic()
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            if time.monotonic() - self._received_at < REPEAT_S:
                return
            raise KeyboardInterrupt
        self.received, self._received_at = signal.Signals(number), time.monotonic()


@contextlib.contextmanager
def preserve_handlers() -> Iterator[None]:
    """Restore the handlers of this process after the block, in which a library may change them."""
    handlers = {number: signal.getsignal(number) for number in (*ENDING, *PREEMPTING)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                if handler is not None:  # else a handler in C, which Python could not restore
                    signal.signal(number, handler)
