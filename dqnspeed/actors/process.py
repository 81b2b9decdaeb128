"""Actor processes: the learner's side."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing.connection
import os
import signal
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing

from dqnspeed.actors.base import ActorArguments, Actors, Parallelism
from dqnspeed.actors.child import ActorJob, Controls, Failure, Paused, Ready, Unshared, Weights, act, first_line
from dqnspeed.actors.stepper import Collected
from dqnspeed.algorithms import algorithm_of, epsilon_at
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import ActorError, Episode
from dqnspeed.memory import SharedBuffers
from dqnspeed.system.signals import children_ignore_signals

START_TIMEOUT_S = 120.0  # importing torch and making environments on a busy machine
STACK_TIMEOUT_S = 3.0


def not_shared(run: RunConfig, device: torch.device, reason: str) -> str:
    """One sentence on weights that actors cannot open, and what to use instead."""
    if device.type != "cuda":
        return f"the actors cannot share the learner's weights ({reason})."
    return (
        f"parallelism=process: the actors cannot share the learner's weights ({reason}); a GPU in a container or a "
        f"MIG slice may not allow it (CUDA IPC): use {algorithm_of(run).without_processes}, or device=cpu."
    )


class ProcessActors:
    """Actor processes with N environments each, and the pipes and shared memory between them and the learner.

    Every actor has a pipe of its own, whose other end is closed here, so a dead actor is noticed at once as the end of
    its pipe. The pipe carries results of whole games and, with ``transport=queue``, single pickled transitions; it
    holds about as many as the chapter's queue of 8. With ``transport=shared_memory`` actors write their rows straight
    into the memory.
    """

    def __init__(self, arguments: ActorArguments):
        run, network, memory, device = arguments.run, arguments.network, arguments.memory, arguments.device
        self._run, self._memory, self._device = run, memory, device
        self._epsilon_at = functools.partial(epsilon_at, run=run)
        self._timeout = run.parallelism.timeout_s
        self._count = run.parallelism.num_actors
        self._last_watch = self._reading_since = 0.0
        self.seconds = {"acting": 0.0, "stepping": 0.0, "waiting": 0.0}
        self._processes: list[Any] = []
        self._pipes: list[Any] = []
        self._dumps = tempfile.TemporaryDirectory(prefix="dqnspeed-actors-")
        context = torch.multiprocessing.get_context("spawn")
        self._controls = Controls(context, self._count)
        self._states: dict[str, Any] = dict(arguments.state or {})
        for actor, saved in self._states.items():
            self._controls.agent_steps[int(actor)] = saved["agent_steps"]
            self.seconds["waiting"] += saved["seconds"]["waiting"]
        self._drained = int(self._controls.agent_steps.sum())
        self._pauses = 0
        network.share_memory()
        shared = memory.buffers if isinstance(memory.buffers, SharedBuffers) else None
        try:
            for index in range(self._count):
                receiver, sender = context.Pipe(duplex=False)
                job = ActorJob(
                    run, arguments.spec, index, Weights(network), device, shared, arguments.lock, self._controls,
                    self._dump(index), self._states.get(str(index)), arguments.segment,
                )  # fmt: skip
                process = context.Process(target=act, args=(job, sender), name=f"actor-{index}", daemon=True)
                try:
                    with children_ignore_signals():
                        process.start()
                except RuntimeError as error:  # weights on a GPU that cannot be shared
                    if device.type != "cuda":
                        raise
                    raise ActorError(not_shared(run, device, first_line(error))) from error
                sender.close()
                self._processes.append(process)
                self._pipes.append(receiver)
            self._await_ready()
        except BaseException:
            self.close()
            raise
        if shared is not None:
            shared.unlink()

    def begin(self) -> None:
        """Let the actors step from now on."""
        self._controls.heartbeat[:] = time.monotonic()
        self._controls.go.value = 1

    def dispatch(self) -> None:
        """Nothing: actors step by themselves."""

    def collect(self, limit: float, wait: bool) -> Collected:
        """Read all pipes; with ``wait``, wait a little for new experience first.

        Raises:
            ActorError: an actor died, hung or raised.
        """
        self._controls.limit.value = limit
        collected = Collected()
        if wait:
            self._wait_for_more()
        for index, pipe in enumerate(self._pipes):
            self._drain(index, pipe, collected)
        self._watch()
        return self._counted(collected)

    def pause(self) -> Collected:
        """Pause the actors; each sends its state after its last rows."""
        self._states = {}
        self._pauses += 1
        self._controls.pause.value = self._pauses
        collected = Collected()
        while len(self._states) < self._count:
            multiprocessing.connection.wait(self._pipes, timeout=0.05)
            for index, pipe in enumerate(self._pipes):
                self._drain(index, pipe, collected)
            self._watch()
        return self._counted(collected)

    def state_dict(self) -> dict[str, Any]:
        for saved in self._states.values():
            saved["seconds"]["waiting"] = self.seconds["waiting"] / self._count
        return self._states

    def proceed(self) -> None:
        """Let the actors step again."""
        self._controls.pause.value = 0

    def close(self) -> None:
        """Stop every actor, and kill those that have not ended after 5 s."""
        self._controls.stop.value = 1
        self._controls.go.value = 1
        for pipe in self._pipes:
            pipe.close()  # an actor blocked in a write gets an error and ends
        deadline = time.monotonic() + 5
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.join()
            process.close()
        self._processes, self._pipes = [], []
        self._dumps.cleanup()

    def _counted(self, collected: Collected) -> Collected:
        total = int(self._controls.agent_steps.sum())
        collected.agent_steps = total - self._drained
        self._drained = total
        collected.epsilon = self._epsilon_at(total)
        for i, name in enumerate(("acting", "stepping")):
            self.seconds[name] = float(self._controls.seconds[:, i].sum())
        return collected

    def _wait_for_more(self) -> None:
        """Wait for at most 10 ms, until a message comes or the actors' counters change."""
        begin = time.perf_counter()
        while time.perf_counter() < begin + 0.01 and int(self._controls.agent_steps.sum()) == self._drained:
            if multiprocessing.connection.wait(self._pipes, timeout=0.0005):
                break
        self.seconds["waiting"] += time.perf_counter() - begin

    def _drain(self, index: int, pipe: Any, collected: Collected) -> None:
        try:
            # A bounded number, so that a fast actor cannot block the learner.
            for _ in range(256):
                if not pipe.poll():
                    return
                message = pipe.recv()
                if isinstance(message, tuple):
                    env, row = message
                    self._memory.append(row, lane=index * self._run.num_envs + env)
                elif isinstance(message, Episode):
                    end_row = message.end_row or self._memory.rows(message.env)
                    collected.episodes.append(replace(message, end_row=end_row))
                elif isinstance(message, Paused) and message.number == self._pauses:
                    self._states[str(index)] = message.state
                elif isinstance(message, Failure):
                    raise ActorError(f"actor {index} raised:\n{message.traceback}")
        except (EOFError, OSError) as error:
            raise ActorError(self._cause_of_death(index)) from error

    def _watch(self) -> None:
        now = time.monotonic()
        if now - self._last_watch > 1.0:
            self._reading_since = now  # the learner was busy: actors may have waited for their pipe to be read
        self._last_watch = now
        for index in range(self._count):
            silent = now - max(self._controls.heartbeat[index], self._reading_since)
            if silent > self._timeout:
                raise ActorError(
                    f"actor {index} has been silent for {silent:.0f} s (parallelism.timeout_s={self._timeout}); "
                    f"it hangs at:\n{self._stack_of(index)}"
                )

    def _await_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        for index, pipe in enumerate(self._pipes):
            try:
                if not pipe.poll(max(0.0, deadline - time.monotonic())):
                    raise ActorError(f"actor {index} did not start within {START_TIMEOUT_S:.0f} s.")
                message = pipe.recv()
            except (EOFError, OSError) as error:
                raise ActorError(self._cause_of_death(index)) from error
            if isinstance(message, Failure):
                raise ActorError(f"actor {index} raised while starting:\n{message.traceback}")
            if isinstance(message, Unshared):
                raise ActorError(not_shared(self._run, self._device, message.reason))
            assert isinstance(message, Ready)
            if not message.games_restored:
                self._memory.cut(index * self._run.num_envs, self._run.num_envs)

    def _cause_of_death(self, index: int) -> str:
        self._processes[index].join(STACK_TIMEOUT_S)
        code = self._processes[index].exitcode
        how = f"was killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exited with {code}"
        text = self._read_dump(index)
        return f"actor {index} {how}" + (f":\n{text}" if text else ".")

    def _stack_of(self, index: int) -> str:
        """The Python stack of an actor that hangs, even in C code."""
        pid = self._processes[index].pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
        deadline = time.monotonic() + STACK_TIMEOUT_S
        # A dump is written in pieces and ends with the outermost frame, that of a module.
        while "<module>" not in (text := self._read_dump(index)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return text or "(no stack: the process does not answer signals)"

    def _dump(self, index: int) -> str:
        return str(Path(self._dumps.name) / f"actor-{index}.txt")

    def _read_dump(self, index: int) -> str:
        with contextlib.suppress(OSError):
            return Path(self._dump(index)).read_text().strip()
        return ""


@register("parallelism", "process")
@dataclass(frozen=True)
class Process(Parallelism):
    """Actor processes act while this process learns."""

    processes = True

    def make(self, arguments: ActorArguments) -> Actors:
        return ProcessActors(arguments)
