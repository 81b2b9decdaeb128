"""Ray actors, which run in processes of Ray on the machines of a cluster.

A worker acts in a thread of its own. The learner calls :meth:`RayActor.exchange` again and again: each call brings a
command and newer weights, and returns what was collected. Ray pickles everything that crosses the network.
"""

from __future__ import annotations

import operator
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from dqnspeed.actors.worker import ActorCommand, Paused, Ready, Worker, WorkerArguments, reason_of
from dqnspeed.algorithms import make_network
from dqnspeed.buffers import Rows
from dqnspeed.envs import EnvSpec, Episode
from dqnspeed.execution.arrays import host
from dqnspeed.execution.malloc import keep_memory
from dqnspeed.networks.base import Network
from dqnspeed.system import machine
from dqnspeed.system.messages import FOREIGN

ANSWER_S = 0.2  # after which an exchange returns, whatever was collected
BLOCKED_ANSWER_S = 0.01  # as ANSWER_S, of a worker that waits for the learner
MAX_BATCHES_AHEAD = 2  # batches that may wait for the learner
STOP_TIMEOUT_S = 5.0

VersionedWeights = tuple[int, Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class RayArguments(WorkerArguments):
    """Arguments of a Ray actor.

    Args:
        agent_steps: agent steps of the actors that it replaces.
        rows: rows that each of its environments has in the buffer.
    """

    agent_steps: int
    rows: int


@dataclass(frozen=True)
class RayCommand:
    """Command of the learner, with limits until which a worker may act on its own.

    Args:
        max_steps: agent steps of the worker at which it must wait.
        max_rows: rows of each of its environments at which it must wait.
        total_steps: agent steps of all actors that the learner has.
    """

    pause: int = 0
    max_steps: float = 0
    max_rows: float = 0
    total_steps: int = 0


@dataclass(frozen=True)
class Delivery:
    """Everything that a worker collected since the last exchange.

    Args:
        rows: rows ``(T, N, ...)`` of T steps, or ``None``.
        frames: the compressed frames of ``rows``, which has none then.
        episodes: episodes that ended, each with the number of its step among the T.
        agent_steps: agent steps in ``rows``.
        seconds: seconds of acting and stepping since the start of the worker.
        messages: messages that follow the rows.
        version: version of the weights that the worker acts with.
        silent_s: seconds since its last sign of life.
        failure: the error that ended it.
    """

    rows: Rows | None
    frames: bytes | None
    episodes: Sequence[tuple[int, Episode]]
    agent_steps: int
    seconds: tuple[float, float]
    messages: Sequence[Ready | Paused]
    version: int
    silent_s: float
    failure: str | None

    @property
    def nbytes(self) -> int:
        """Number of bytes of all arrays."""
        if self.rows is None:
            return 0
        sizes = [len(self.frames or b"")]
        self.rows.map(lambda column: sizes.append(column.nbytes))
        return sum(sizes)

    def steps(self, spec: EnvSpec) -> list[Rows]:
        """Rows ``(N, ...)`` of each step."""
        rows = self.rows
        if rows is None:
            return []
        if self.frames is not None:
            frames = np.frombuffer(zlib.decompress(self.frames), spec.frame_dtype)
            rows = replace(rows, frames=frames.reshape(*rows.actions.shape, *spec.frame_shape))
        return [rows.map(operator.itemgetter(t)) for t in range(len(rows.actions))]


def stacked(steps: Sequence[Rows]) -> Rows:
    """Stack the rows ``(N, ...)`` of T steps as ``(T, N, ...)``."""
    return steps[0].map(lambda *columns: np.stack(columns), *steps[1:])


@dataclass
class _Collected:
    steps: list[Rows] = field(default_factory=list)
    episodes: list[tuple[int, Episode]] = field(default_factory=list)
    messages: list[Ready | Paused] = field(default_factory=list)
    agent_steps: int = 0


class RayChannel:
    """Channel between the thread of a worker and the calls of the learner.

    Args:
        version: version of the weights that the worker starts with.
    """

    def __init__(self, arguments: RayArguments, version: int):
        parallelism: Any = arguments.run.parallelism
        self.network: Network | None = None
        self._batch_steps, self._compress = parallelism.batch_steps, parallelism.compress
        self._condition = threading.Condition()
        self._command, self._stop = RayCommand(), False
        self._agent_steps, self._rows = arguments.agent_steps, arguments.rows
        self._collected, self._seconds = _Collected(), (0.0, 0.0)
        self._newest: VersionedWeights | None = None
        self._version, self._heartbeat, self._is_waiting = version, time.monotonic(), False
        self._failure: str | None = None

    # Calls of the worker

    def send(self, message: Ready | Paused) -> None:
        with self._condition:
            self._collected.messages.append(message)
            self._condition.notify_all()

    def command(self) -> ActorCommand:
        self._heartbeat = time.monotonic()
        with self._condition:
            command, collected = self._command, self._collected
            may_step = (
                self._agent_steps < command.max_steps
                and self._rows < command.max_rows
                and len(collected.steps) < MAX_BATCHES_AHEAD * self._batch_steps
            )
            return ActorCommand(self._stop, command.pause, may_step, command.total_steps + collected.agent_steps)

    def wait(self) -> None:
        with self._condition:
            self._is_waiting = True
            self._condition.notify_all()
            self._condition.wait(ANSWER_S)
            self._is_waiting = False

    def refresh(self) -> None:
        with self._condition:
            newest, self._newest = self._newest, None
        if newest is not None and self.network is not None:
            self._version = newest[0]
            load(self.network, newest)

    def deliver(self, rows: Rows, episodes: list[Episode], seconds: Mapping[str, float]) -> None:
        agent_steps = int(rows.transition.sum())
        with self._condition:
            collected = self._collected
            collected.episodes += [(len(collected.steps), episode) for episode in episodes]
            collected.steps.append(rows.on_host())
            collected.agent_steps += agent_steps
            self._agent_steps += agent_steps
            self._rows += 1
            self._seconds = seconds["acting"], seconds["stepping"]
            if len(collected.steps) >= self._batch_steps:
                self._condition.notify_all()

    # Calls of the learner

    def exchange(self, command: RayCommand, weights: VersionedWeights | None) -> Delivery:
        """Give a command and newer weights; returns what was collected, as soon as it fills a batch."""
        with self._condition:
            self._command = command
            if weights is not None:
                self._newest = weights
            self._is_waiting = False
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._is_due() or self._is_waiting, ANSWER_S)
            if not self._is_due() and not self._collected.steps:
                self._condition.wait_for(self._is_due, BLOCKED_ANSWER_S)
            collected, self._collected = self._collected, _Collected()
            self._condition.notify_all()
        rows, frames = stacked(collected.steps) if collected.steps else None, None
        if rows is not None and self._compress:
            rows.frames, frames = np.empty(0), zlib.compress(host(rows.frames).tobytes(), level=1)
        return Delivery(
            rows, frames, collected.episodes, collected.agent_steps, self._seconds, collected.messages,
            self._version, time.monotonic() - self._heartbeat, self._failure,
        )  # fmt: skip

    def _is_due(self) -> bool:
        collected = self._collected
        return bool(collected.messages or self._failure or len(collected.steps) >= self._batch_steps)

    def fail(self, failure: str) -> None:
        with self._condition:
            self._failure = failure
            self._condition.notify_all()

    def stop(self) -> None:
        with self._condition:
            self._stop = True
            self._condition.notify_all()


class RayActor:
    """Ray actor with a worker; two of its methods may be called at the same time.

    Weights come as their version and a list with a reference to them: Ray fetches a reference in a list only when
    :func:`ray.get` asks for it.
    """

    def __init__(self, arguments: RayArguments, weights: tuple[int, Sequence[Any]]):
        self._channel = RayChannel(arguments, weights[0])
        self._thread = threading.Thread(target=self._act, args=(arguments, [_fetched(weights)]), daemon=True)
        self._thread.start()

    def exchange(self, command: RayCommand, weights: tuple[int, Sequence[Any]] | None) -> Delivery:
        """Call :meth:`RayChannel.exchange`."""
        return self._channel.exchange(command, None if weights is None else _fetched(weights))

    def stop(self) -> None:
        """End the worker."""
        self._channel.stop()
        self._thread.join(STOP_TIMEOUT_S)

    def _act(self, arguments: RayArguments, newest: list[VersionedWeights]) -> None:
        torch.set_num_threads(1)
        keep_memory(arguments.run.execution)
        execution = arguments.run.execution
        if machine.best_precision("cpu") == "fp32":  # the learner's device may compute in bf16, but this CPU does not
            execution = replace(execution, precision="fp32")
        arguments = replace(arguments, run=replace(arguments.run, execution=execution))
        try:
            self._channel.network = network = make_network(arguments.run, arguments.spec)
            load(network, newest.pop())  # the object store keeps arrays as long as somebody refers to them
            Worker(arguments, network, torch.device("cpu"), self._channel).act()
        except FOREIGN as error:
            self._channel.fail(reason_of(error))


def _fetched(weights: tuple[int, Sequence[Any]]) -> VersionedWeights:
    import ray

    return weights[0], ray.get(weights[1][0])


def load(network: Network, weights: VersionedWeights) -> None:
    version, arrays = weights
    network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})
    network.version.fill_(version)


def weights_of(network: Network) -> dict[str, np.ndarray]:
    """Copies of all weights on the host."""
    return {
        name: (tensor.float() if tensor.is_floating_point() else tensor).cpu().numpy().copy()
        for name, tensor in network.state_dict().items()
    }
