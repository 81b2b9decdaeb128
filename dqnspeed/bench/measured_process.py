"""The bench's side of a measured process: start it, read its counts, pause it, end it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dqnspeed.bench.counting import COUNT, EXIT, PAUSE, RESUME, SOCKET
from dqnspeed.system.signals import signal_name

START_S, ANSWER_S, EXIT_S = 180.0, 60.0, 10.0  # most seconds until a process is ready, answers, has ended

Speeds = Mapping[str, float]  # work per second, by the names that a process counts


class ProcessError(Exception):
    """The measured process ``process`` failed; the message is one sentence without its full stop."""

    def __init__(self, process: MeasuredProcess, sentence: str):
        super().__init__(sentence)
        self.process = process


@dataclass(frozen=True)
class Program:
    """A command that follows :mod:`dqnspeed.bench.counting`, and its standard input."""

    command: Sequence[str]
    stdin: bytes = b""


class MeasuredProcess:
    """A running :class:`Program`, paused until :func:`measure_speeds` resumes it."""

    def __init__(self, program: Program):
        self._socket, child_socket = socket.socketpair()
        self._answers = self._socket.makefile("rb")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed by end()
        with child_socket:
            number = child_socket.fileno()
            self._process = subprocess.Popen(
                program.command, stdin=subprocess.PIPE, stdout=self._log, stderr=self._log,
                env={**os.environ, SOCKET: str(number)}, pass_fds=[number],
            )  # fmt: skip
        self.pid = self._process.pid
        assert self._process.stdin is not None
        with contextlib.suppress(OSError), self._process.stdin as stdin:  # the process may have died at once
            stdin.write(program.stdin)

    def await_ready(self) -> None:
        """Wait for the first finished unit of work, and pause there; raises :class:`ProcessError`."""
        self.answer(START_S)
        self.send_signal(signal.SIGSTOP)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and all its children."""
        with contextlib.suppress(OSError):  # a process that failed early has no group
            os.killpg(self.pid, number)

    def resume(self) -> None:
        """Continue after a pause."""
        self.send_signal(signal.SIGCONT)
        self.request(RESUME)

    def request(self, message: bytes) -> None:
        """Send a request; if the process is dead, :meth:`answer` says why."""
        with contextlib.suppress(OSError):
            self._socket.sendall(message)

    def answer(self, limit_s: float = ANSWER_S) -> tuple[float, dict[str, float]]:
        """Time and counts of the next answer.

        Raises:
            ProcessError: the process died, hangs, or reports an error.
        """
        self._socket.settimeout(limit_s)
        try:
            line = self._answers.readline()
        except TimeoutError as error:
            raise ProcessError(self, f"has not answered for {limit_s:g} s") from error
        except OSError:
            line = b""
        if not line:
            raise ProcessError(self, self._cause_of_death())
        answer = json.loads(line)
        if "error" in answer:
            raise ProcessError(self, answer["error"])
        return answer["time"], answer["counts"]

    def end(self) -> None:
        """End the process and all its children, whatever they do."""
        try:
            self.send_signal(signal.SIGCONT)
            self.request(EXIT)
            self._wait()
        finally:
            self.send_signal(signal.SIGKILL)
            self._process.kill()
            self._wait()
            for file in (self._answers, self._socket, self._log):
                file.close()

    def _wait(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_S)

    def _cause_of_death(self) -> str:
        self._wait()
        code = self._process.returncode
        how = "closed its socket" if code is None else f"exited with {code}"
        if code is not None and code < 0:
            how = f"was killed by {signal_name(-code)}"
        self._log.seek(0)
        last = last_line(self._log.read().decode(errors="replace"))
        return f"{how} ({last})" if last else how


def last_line(log: str) -> str:
    """The last line of ``log`` with text, shortened and without its full stop; or an empty text."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1][:200].rstrip(".") if lines else ""


@contextlib.contextmanager
def running(programs: Sequence[Program]) -> Iterator[list[MeasuredProcess]]:
    """Processes that are ready, and that end with the block; raises :class:`ProcessError`."""
    with contextlib.ExitStack() as resources:
        processes = list[MeasuredProcess]()
        for program in programs:
            processes.append(MeasuredProcess(program))
            resources.callback(processes[-1].end)
        for process in processes:
            process.await_ready()
        yield processes


def measure_speeds(processes: Sequence[MeasuredProcess], settle_s: float, slice_s: float) -> Speeds:
    """Run paused processes side by side, and return the sum of their speeds.

    Args:
        settle_s: seconds before the measurement, in which caches fill and waiting threads wake.
        slice_s: seconds measured; a slice ends with the next whole event.

    Raises:
        ProcessError: a process failed.
    """
    for process in processes:
        process.resume()
    time.sleep(settle_s)
    before = _answers(processes, COUNT)
    time.sleep(slice_s)
    after, total = _answers(processes, PAUSE), dict[str, float]()
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    for (begin, counts), (end, later) in zip(before, after, strict=True):
        for name, count in later.items():
            total[name] = total.get(name, 0.0) + (count - counts[name]) / (end - begin)
    return total


def _answers(processes: Sequence[MeasuredProcess], request: bytes) -> list[tuple[float, dict[str, float]]]:
    for process in processes:
        process.request(request)
    return [process.answer() for process in processes]
