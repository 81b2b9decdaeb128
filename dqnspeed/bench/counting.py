"""How a process that is measured answers the bench, which counts its work from outside.

The bench starts a process with one end of a socket, whose number stands in the environment variable ``FD``. It asks by
one byte, and the process answers at its next *event*, such as a step and the updates due with it, by one line of JSON:
the time of the event and all that was done until then. A speed is the difference of two answers, so that it begins and
ends with a whole event, however long one takes.

| question | meaning |
|---|---|
| ``COUNT`` | answer at the next event |
| ``STOP`` | answer at the next event, and wait there, with all child processes suspended |
| ``GO`` | go on; not answered |
| ``END`` | leave by :class:`SystemExit`; not answered |

A process begins as if it was asked to ``STOP``: its first answer tells that it is ready. It works until it is told to
end, and kills itself and its children when the bench is gone. That is all that another library needs::

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

import psutil

FD = "DQNSPEED_BENCH_FD"
COUNT, STOP, GO, END = b"c", b"s", b"g", b"e"
STEPS, UPDATES = "agent steps", "updates"  # what a training counts; a piece counts what its unit names


class Counter:
    """The measured process' side.

    Attributes:
        stopped: a context that the process is in while it waits.
    """

    stopped: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext

    def __init__(self) -> None:
        # A group of its own, which can be killed with all that it starts.
        if os.getpgrp() != os.getpid():
            os.setpgid(0, 0)
        self._socket = socket.socket(fileno=int(os.environ.pop(FD)))
        self._questions: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._questions.put(STOP)
        threading.Thread(target=self._listen, daemon=True).start()

    def event(self, counts: Mapping[str, float]) -> None:
        """Something whole was done; ``counts`` is all that was done since the start, by its name."""
        if self._questions.empty():
            return
        node = {"time": time.monotonic(), "counts": dict(counts)}
        question = self._questions.get()
        if question == COUNT:
            self._answer(node)
        if question == STOP:
            with self.stopped():
                children = psutil.Process().children(recursive=True)
                _each(children, "suspend")
                self._answer(node)
                question = self._questions.get()
                _each(children, "resume")
        if question == END:
            raise SystemExit

    def fail(self, sentence: str) -> None:
        """Tell why nothing can be measured."""
        self._answer({"error": sentence})

    def _answer(self, node: Mapping[str, object]) -> None:
        with contextlib.suppress(OSError):  # the bench is gone, and this process soon
            self._socket.sendall(json.dumps(node).encode() + b"\n")

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while question := self._socket.recv(1):
                self._questions.put(question)
        os.killpg(0, signal.SIGKILL)


def _each(processes: list[psutil.Process], action: str) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            getattr(process, action)()
