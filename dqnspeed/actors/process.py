"""Actor processes on this machine: the learner's side."""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing

from dqnspeed.actors.base import ActorArguments, Actors, Parallelism
from dqnspeed.actors.remote import ActorHandle, LostError, RemoteActors
from dqnspeed.actors.worker import (
    Failed,
    ProcessArguments,
    SharedState,
    SharedWeights,
    WeightSnapshot,
    run_worker,
)  # fmt: skip
from dqnspeed.buffers import SharedStorage
from dqnspeed.buffers.storage import sharing
from dqnspeed.config.registry import register
from dqnspeed.networks.base import Network
from dqnspeed.system import child_processes
from dqnspeed.system.child_processes import children_ignore_signals
from dqnspeed.system.signals import signal_name

MAX_MESSAGES = 256  # taken from an actor at a time, so that a fast one cannot block the learner
MAX_READ_GAP_S = 1.0  # longest time between two reads in which a silent actor cannot be waiting for the learner
WAIT_S, POLL_S = 0.01, 0.0005  # for new experience
STACK_S, END_TIMEOUT_S = 0.5, 5.0


class ProcessHandle(ActorHandle):
    """An actor process and its pipe.

    Args:
        arguments: arguments of the process, which gets another state and segment.
    """

    process: Any = None  # while it has not ended

    def __init__(self, context: Any, arguments: ProcessArguments):
        super().__init__(arguments.index)
        self._context, self._arguments = context, arguments
        self._counters = arguments.shared.counters[arguments.index]
        self._last_read = self._excused = 0.0

    def start(self, state: Mapping[str, Any] | None, segment: int) -> None:
        arguments = replace(self._arguments, state=state, segment=segment)
        self._last_read = time.monotonic()
        self.pipe, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=run_worker, args=(arguments, sender), name=f"actor-{self.index}", daemon=True
        )
        try:
            with children_ignore_signals():
                process.start()
        finally:
            sender.close()
        self.process = process

    def messages(self) -> Iterator[Any]:
        now = time.monotonic()
        try:
            # After a gap (a busy learner, or a machine asleep) an actor may have waited for its pipe to be read.
            lives = self._counters["heartbeat"] > self._excused
            if now - self._last_read > MAX_READ_GAP_S and (lives or self.pipe.poll()):
                self._counters["heartbeat"] = self._excused = now
            self._last_read = now
            for _ in range(MAX_MESSAGES):
                if not self.pipe.poll():
                    return
                message = self.pipe.recv()
                if isinstance(message, Failed):
                    raise LostError(f"actor {self.index} raised:\n{message.reason}")
                yield message
        except (EOFError, OSError) as error:
            raise LostError(self._cause_of_death()) from error

    def where_it_hangs(self) -> str:
        """Have an actor that hangs, even in C code, print its Python stack."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGUSR1)
        time.sleep(STACK_S)
        return "; its stack is printed above."

    def end(self) -> None:
        if self.process is not None:
            self.pipe.close()
            self.process.kill()
            self.process.join()
            self.process.close()
            self.process = None

    def _cause_of_death(self) -> str:
        self.process.join(END_TIMEOUT_S)
        code = self.process.exitcode
        how = "closed its pipe" if code is None else f"exited with {code}"
        if code is not None and code < 0:
            how = f"was killed by {signal_name(-code)}"
        return f"actor {self.index} {how}."


class ProcessActors(RemoteActors):
    """Actor processes with N environments each, on this machine.

    Each actor has a pipe of its own, so a dead actor is noticed at once as the end of its pipe. The pipe carries
    finished episodes and, with ``transport=queue``, single pickled transitions: about as many as the queue of 8 in the
    book. With ``transport=shared_memory`` actors write rows into shared arrays, and the
    learner copies them into its replay buffer; rollouts are read in place.

    Args:
        copy_weights: actors load copies of the weights; otherwise they act with the learner's network.
    """

    def __init__(self, arguments: ActorArguments, copy_weights: bool):
        run, network, buffers = arguments.run, arguments.network, arguments.buffer.storage.host
        context, count = torch.multiprocessing.get_context(child_processes.START_METHOD), run.parallelism.num_actors
        self._shared = SharedState(context, count)
        super().__init__(arguments, self._shared.counters)
        self._folder = tempfile.TemporaryDirectory(prefix="dqnspeed-actors-")
        self._publisher: WeightPublisher | None = None
        weights: SharedWeights | WeightSnapshot
        try:
            with sharing(f"parallelism={run.parallelism.name}", network.num_bytes):
                if copy_weights:
                    weights = WeightSnapshot(network, Path(self._folder.name) / "weights.lock")
                    self._publisher = WeightPublisher(network, weights)
                else:
                    weights = SharedWeights(network)
            shared_buffers = buffers if isinstance(buffers, SharedStorage) else None
            common = weights, arguments.device, shared_buffers, self._shared
            self._start_all(
                [
                    ProcessHandle(context, ProcessArguments(run, arguments.spec, i, None, 0, *common))
                    for i in range(count)
                ]
            )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop every actor, and kill actors that have not ended after 5 s."""
        self._shared.stop.value = 1
        running = [handle for handle in self._handles if handle.process is not None]
        for handle in running:
            handle.pipe.close()  # an actor that waits in a write gets an error and ends
        deadline = time.monotonic() + END_TIMEOUT_S
        for handle in running:
            handle.process.join(max(0.0, deadline - time.monotonic()))
            handle.end()
        self._folder.cleanup()

    def _allow(self, limit: float) -> None:
        if self._publisher is not None:
            self._publisher.publish()
        self._shared.limit.value = limit
        self._counters["rows_allowed"] = self._buffer.rows_allowed()[:: self._run.num_envs]

    def _order_pause(self, number: int) -> None:
        self._shared.pause.value = number

    def _wait(self) -> None:
        """Wait for at most 10 ms, until a message comes or the actors' counters change."""
        pipes = [handle.pipe for handle in self._handles]
        end = time.perf_counter() + WAIT_S
        while time.perf_counter() < end and self._counters["agent_steps"].sum() == self._counted_steps:
            if multiprocessing.connection.wait(pipes, timeout=POLL_S):
                break


class WeightPublisher:
    """Copies the learner's weights from a GPU into a snapshot, while the learner trains."""

    def __init__(self, network: Network, snapshot: WeightSnapshot):
        self._network, self._snapshot = network, snapshot
        self._on_gpu = next(network.parameters()).device.type == "cuda"
        self._landing = {
            name: torch.empty(t.shape, dtype=t.dtype, pin_memory=self._on_gpu)
            for name, t in network.state_dict().items()
        }
        self._version = int(network.version)  # newest version that is copied or on its way
        self._landed: torch.cuda.Event | None = None
        self._is_on_its_way = False

    def publish(self) -> None:
        """Publish the newest weights once the last ones have been stored; never waits for the GPU."""
        self._store_landed()
        version = int(self._network.version)
        if self._is_on_its_way or version == self._version:
            return
        for name, tensor in self._network.state_dict().items():
            self._landing[name].copy_(tensor, non_blocking=True)
        if self._on_gpu:
            self._landed = torch.cuda.Event()
            self._landed.record()
        self._version, self._is_on_its_way = version, True
        self._store_landed()

    def _store_landed(self) -> None:
        if self._is_on_its_way and (self._landed is None or self._landed.query()):
            self._is_on_its_way = not self._snapshot.store(self._landing, self._version)


@register("parallelism", "process")
@dataclass(frozen=True)
class Process(Parallelism):
    """Actor processes act while this process learns."""

    processes = True
    shares_memory = True

    def make(self, arguments: ActorArguments) -> Actors:
        return ProcessActors(arguments, copy_weights=arguments.device.type == "cuda")
