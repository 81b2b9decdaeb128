"""How a measured process counts its work and answers the bench.

The bench starts the process with one end of a socket, whose number is in the environment variable ``SOCKET``. The
bench sends requests of one byte. The process answers at its next *event*, for example a step with its updates. An
answer is one line of JSON: the time of the event, and all work done until then. A speed is the difference of two
answers, so that it begins and ends with a whole event.

| request | meaning |
|---|---|
| ``COUNT`` | answer at the next event |
| ``PAUSE`` | answer at the next event, and wait there; the bench then stops the whole process group |
| ``RESUME`` | continue; not answered |
| ``EXIT`` | leave by :class:`SystemExit`; not answered |

A process starts as if it had received ``PAUSE``: its first answer says that it is ready. If the bench dies, the process
kills itself and its children. Another library needs only this::

    counter = Counter()
    while True:
        step()
        counter.event({STEPS: steps, UPDATES: updates})
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

SOCKET = "DQNSPEED_BENCH_SOCKET"
COUNT, PAUSE, RESUME, EXIT = b"c", b"p", b"r", b"e"
STEPS, UPDATES = "agent steps", "updates"  # work of a whole training


class Counter:
    """The side of the measured process.

    Attributes:
        paused: context manager around every wait, for example to stop clocks.
    """

    paused: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext

    def __init__(self) -> None:
        if os.getpgrp() != os.getpid():
            os.setpgid(0, 0)  # the process can be stopped and killed with all its children
        self._socket = socket.socket(fileno=int(os.environ.pop(SOCKET)))
        self._requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._requests.put(PAUSE)
        threading.Thread(target=self._receive, daemon=True).start()

    def event(self, counts: Mapping[str, float]) -> None:
        """Report a finished unit of work; ``counts`` is all work since the start, by name."""
        if self._requests.empty():
            return
        answer = {"time": time.monotonic(), "counts": dict(counts)}
        request = self._requests.get()
        if request == COUNT:
            self._send(answer)
        if request == PAUSE:
            with self.paused():
                self._send(answer)
                request = self._requests.get()
        if request == EXIT:
            raise SystemExit

    def fail(self, sentence: str) -> None:
        """Tell the bench why nothing can be measured."""
        self._send({"error": sentence})

    def _send(self, answer: Mapping[str, object]) -> None:
        with contextlib.suppress(OSError):  # the bench has died, and this process is about to be killed
            self._socket.sendall(json.dumps(answer).encode() + b"\n")

    def _receive(self) -> None:
        with contextlib.suppress(OSError):
            while request := self._socket.recv(1):
                self._requests.put(request)
        os.killpg(0, signal.SIGKILL)
