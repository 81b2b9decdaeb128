"""A measured process as the bench sees it: started, asked, told to wait, and ended with all that it started."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dqnspeed.bench.counting import COUNT, END, FD, GO, STOP

START_S, ANSWER_S, END_S = 180.0, 60.0, 10.0  # most seconds until a process is ready, answers, and has ended

Speeds = Mapping[str, float]  # what is done a second, by the names that a process counts


class SubjectError(Exception):
    """The measured process ``subject`` failed; the message is one sentence without its full stop."""

    def __init__(self, subject: Subject, sentence: str):
        super().__init__(sentence)
        self.subject = subject


@dataclass(frozen=True)
class Program:
    """A command that answers as :mod:`dqnspeed.bench.counting` says, and what it reads from its standard input."""

    command: Sequence[str]
    stdin: bytes = b""


class Subject:
    """A running :class:`Program`, which waits until it is measured."""

    def __init__(self, program: Program):
        self._socket, theirs = socket.socketpair()
        self._received = b""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed by end()
        with theirs:
            self._process = subprocess.Popen(
                program.command, stdin=subprocess.PIPE, stdout=self._log, stderr=self._log,
                env={**os.environ, FD: str(theirs.fileno())}, pass_fds=[theirs.fileno()],
            )  # fmt: skip
        assert self._process.stdin is not None
        with contextlib.suppress(OSError), self._process.stdin as stdin:  # it may have died at once
            stdin.write(program.stdin)

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_ready(self) -> None:
        """Wait until it is ready, which is when its first work is done; raises :class:`SubjectError`."""
        self.answer(START_S)

    def end(self) -> None:
        """End it and all that it started, whatever it does."""
        self.tell(END)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
        finally:
            with contextlib.suppress(OSError):  # no such group: it may not have come to make one
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            self._process.wait()
            self._socket.close()
            self._log.close()

    def tell(self, message: bytes) -> None:
        """Ask it, or let it go on. If it is dead its next answer says why."""
        with contextlib.suppress(OSError):
            self._socket.sendall(message)

    def answer(self, limit_s: float = ANSWER_S) -> tuple[float, dict[str, float]]:
        """The time and the counts of its next answer.

        Raises:
            SubjectError: it died, hangs or says that it cannot go on.
        """
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._received:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                received = self._socket.recv(65536)
            except TimeoutError as error:
                raise SubjectError(self, f"has not answered for {limit_s:g} s") from error
            except OSError:
                received = b""
            if not received:
                raise SubjectError(self, self._cause_of_death())
            self._received += received
        line, _, self._received = self._received.partition(b"\n")
        node = json.loads(line)
        if "error" in node:
            raise SubjectError(self, node["error"])
        return node["time"], node["counts"]

    def _cause_of_death(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        code = self._process.returncode
        how = "closed its socket" if code is None else f"exited with {code}"
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return f"{how} ({lines[-1][:200].rstrip('.')})" if lines else how


@contextlib.contextmanager
def running(*programs: Program, end: Callable[[Subject], object] = Subject.end) -> Iterator[list[Subject]]:
    """Subjects that are ready, and for which ``end`` is called with the block's end; raises :class:`SubjectError`."""
    with contextlib.ExitStack() as resources:
        subjects = list[Subject]()
        for program in programs:
            subjects.append(Subject(program))
            resources.callback(end, subjects[-1])
        for subject in subjects:
            subject.await_ready()
        yield subjects


def speeds_of(subjects: Sequence[Subject], settle_s: float, slice_s: float) -> Speeds:
    """Let them work for ``settle_s`` and then for ``slice_s`` seconds, and a little longer; the speeds of the latter.

    Those of several, which work at the same time, are added up. Raises :class:`SubjectError`.
    """
    for subject in subjects:
        subject.tell(GO)
    time.sleep(settle_s)
    before = _asked(subjects, COUNT)
    time.sleep(slice_s)
    total = dict[str, float]()
    for (begin, counts), (end, later) in zip(before, _asked(subjects, STOP), strict=True):
        for name, count in later.items():
            total[name] = total.get(name, 0.0) + (count - counts[name]) / (end - begin)
    return total


def _asked(subjects: Sequence[Subject], question: bytes) -> list[tuple[float, dict[str, float]]]:
    for subject in subjects:
        subject.tell(question)
    return [subject.answer() for subject in subjects]
