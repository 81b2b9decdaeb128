"""Actor processes on this machine: the learner's side."""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing

from dqnspeed.actors.base import ActorArguments, Actors, Parallelism
from dqnspeed.actors.child import ActorJob, Controls, Failure, run_actor
from dqnspeed.actors.remote import LostError, RemoteActors
from dqnspeed.actors.stepper import Collected
from dqnspeed.actors.weights import HostWeights, Publisher
from dqnspeed.buffers import SharedBuffers
from dqnspeed.buffers.storage import sharing
from dqnspeed.config.registry import register
from dqnspeed.networks.base import Network
from dqnspeed.system.child_processes import children_ignore_signals

STACK_TIMEOUT_S = 3.0
END_TIMEOUT_S = 5.0


class ProcessActors(RemoteActors):
    """Actor processes with N environments each, and the pipes and shared memory between them and the learner.

    Every actor has a pipe of its own, whose other end is closed here, so a dead actor is noticed at once as the end of
    its pipe. The pipe carries results of whole games and, with ``transport=queue``, single pickled transitions; it
    holds about as many as the chapter's queue of 8. With ``transport=shared_memory`` actors write their rows straight
    into the memory. They share weights on a CPU, and load copies of those on a GPU from the host's memory.
    """

    def __init__(self, arguments: ActorArguments):
        super().__init__(arguments)
        self._last_look, self._excused = 0.0, [0.0] * self._count
        self._dumps = tempfile.TemporaryDirectory(prefix="dqnspeed-actors-")
        self._context = torch.multiprocessing.get_context("spawn")
        self._controls = Controls(self._context, self._count)
        for actor, saved in self._states.items():
            self._controls.slots["agent_steps"][int(actor)] = saved["agent_steps"]
        buffers = arguments.buffer.buffers
        self._shared = buffers if isinstance(buffers, SharedBuffers) else None
        self._weights: Network | HostWeights = arguments.network
        self._publisher: Publisher | None = None
        try:
            with sharing(f"parallelism={arguments.run.parallelism.name}", arguments.network.num_bytes):
                if arguments.device.type == "cuda":
                    self._weights = HostWeights(arguments.network, Path(self._dumps.name) / "weights.lock")
                    self._publisher = Publisher(arguments.network, self._weights)
                else:
                    arguments.network.share_memory()
            self._start_all()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop every actor, and kill those that have not ended after 5 s."""
        self._controls.stop.value = 1
        links = [link for link in self._links.values() if isinstance(link, ProcessLink)]
        for link in links:
            link.pipe.close()  # an actor blocked in a write gets an error and ends
        deadline = time.monotonic() + END_TIMEOUT_S
        for link in links:
            link.process.join(max(0.0, deadline - time.monotonic()))
            link.end()
        self._links = {}
        self._dumps.cleanup()

    def _link(self, index: int, state: Mapping[str, Any] | None, segment: int) -> ProcessLink:
        made = self._arguments
        dump = Path(self._dumps.name) / f"actor-{index}-{self._lost}.txt"
        job = ActorJob(
            made.run, made.spec, index, state, segment, self._weights, made.device, self._shared, self._controls,
            str(dump),
        )  # fmt: skip
        return ProcessLink(self, self._context, job)

    def seen(self, index: int) -> float:
        """When an actor gave its last sign of life, or is taken to have given one."""
        return max(float(self._controls.slots["heartbeat"][index]), self._excused[index])

    def _steps(self, index: int) -> int:
        return int(self._controls.slots["agent_steps"][index])

    def _allow(self, limit: float) -> None:
        if self._publisher is not None:
            self._publisher.publish()
        self._controls.limit.value = limit
        self._controls.slots["rows_allowed"] = self._buffer.rows_allowed()[:: self._num_envs]

    def _pause(self, number: int) -> None:
        self._controls.pause.value = number

    def _wait(self) -> None:
        """Wait for at most 10 ms, until a message comes or the actors' counters change."""
        pipes = [link.pipe for link in self._links.values() if isinstance(link, ProcessLink)]
        end = time.perf_counter() + 0.01
        while time.perf_counter() < end and int(self._controls.slots["agent_steps"].sum()) == self._drained:
            if multiprocessing.connection.wait(pipes, timeout=0.0005):
                break

    def _receive(self, collected: Collected) -> None:
        now = time.monotonic()
        if now - self._last_look > 1.0:
            # The learner was busy, or this machine asleep: whoever has lived since the last excuse, or sent something,
            # may have waited for the pipe to be read.
            for index, link in self._links.items():
                lived = self._controls.slots["heartbeat"][index] > self._excused[index]
                if lived or (isinstance(link, ProcessLink) and link.pipe.poll()):
                    self._excused[index] = now
        self._last_look = now
        super()._receive(collected)

    def _counted(self, collected: Collected) -> Collected:
        counted = super()._counted(collected)
        if counted.agent_steps:
            self._lags.append(int(self._arguments.network.version) - float(self._controls.slots["version"].mean()))
        return counted

    def _measured_seconds(self) -> Mapping[str, float]:
        acting, stepping = self._controls.slots["seconds"].sum(axis=0).tolist()
        return {"acting": acting, "stepping": stepping}


class ProcessLink:
    """An actor process and its pipe."""

    def __init__(self, actors: ProcessActors, context: Any, job: ActorJob):
        self._actors, self._job = actors, job
        self.pipe, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=run_actor, args=(job, sender), name=f"actor-{job.index}", daemon=True)
        try:
            with children_ignore_signals():
                self.process.start()
        finally:
            sender.close()

    def messages(self) -> Iterator[Any]:
        index = self._job.index
        try:
            # A bounded number, so that a fast actor cannot block the learner.
            for _ in range(256):
                if not self.pipe.poll():
                    return
                message = self.pipe.recv()
                if isinstance(message, Failure):
                    raise LostError(f"actor {index} raised:\n{message.traceback}")
                yield message
        except (EOFError, OSError) as error:
            raise LostError(self._cause_of_death()) from error

    def watch(self, timeout_s: float, since: float) -> None:
        silent = time.monotonic() - max(since, self._actors.seen(self._job.index))
        if silent > timeout_s:
            raise LostError(
                f"actor {self._job.index} has been silent for {silent:.0f} s (parallelism.timeout_s={timeout_s}); "
                f"it hangs at:\n{self._stack()}"
            )

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()
        self.process.close()

    def _cause_of_death(self) -> str:
        self.process.join(STACK_TIMEOUT_S)
        code = self.process.exitcode
        how = f"was killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exited with {code}"
        text = self._dump()
        return f"actor {self._job.index} {how}" + (f":\n{text}" if text else ".")

    def _stack(self) -> str:
        """The Python stack of an actor that hangs, even in C code."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGUSR1)
        deadline = time.monotonic() + STACK_TIMEOUT_S
        # A dump is written in pieces and ends with the outermost frame, that of a module.
        while "<module>" not in (text := self._dump()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return text or "(no stack: the process does not answer signals)"

    def _dump(self) -> str:
        with contextlib.suppress(OSError):
            return Path(self._job.dump_path).read_text().strip()
        return ""


@register("parallelism", "process")
@dataclass(frozen=True)
class Process(Parallelism):
    """Actor processes act while this process learns."""

    processes = True
    shares_memory = True

    def make(self, arguments: ActorArguments) -> Actors:
        return ProcessActors(arguments)
