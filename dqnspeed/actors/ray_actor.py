"""An actor on a node of a Ray cluster: the actor's side.

The actor acts in a thread of its own, and the learner calls :meth:`RayActor.exchange` again and again: each call brings
the newest orders and weights, and takes what was collected. What crosses the network is pickled by Ray itself, between
its own workers.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch

from dqnspeed.actors.loop import Job, Orders, Paused, Ready, complaint, work
from dqnspeed.algorithms import make_network
from dqnspeed.buffers import Rows
from dqnspeed.envs import Episode
from dqnspeed.execution.malloc import keep_memory
from dqnspeed.networks.base import Network
from dqnspeed.system import machine
from dqnspeed.system.messages import FOREIGN

ANSWER_S = 0.2  # after which an exchange returns, whatever was collected
BLOCKED_ANSWER_S = 0.01  # the same of an actor that waits for the learner
AHEAD = 2  # batches that may wait to be taken

Weights = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class RayJob(Job):
    """The arguments of an actor; ``steps`` and ``rows``: those of its games until now."""

    steps: int
    rows: int


@dataclass(frozen=True)
class RayOrders:
    """What the learner asks, and until when the actor may act.

    Args:
        steps: its agent steps at which it must wait; ``rows``: those of each of its environments.
        total: agent steps of all actors that the learner has.
    """

    pause: int = 0
    steps: float = 0
    rows: float = 0
    total: int = 0


@dataclass(frozen=True)
class Frames:
    """An array of frames, compressed."""

    data: bytes
    shape: tuple[int, ...]
    dtype: np.dtype

    @classmethod
    def of(cls, frames: np.ndarray) -> Frames:
        return cls(zlib.compress(frames.tobytes(), level=1), frames.shape, frames.dtype)

    def array(self) -> np.ndarray:
        return np.frombuffer(zlib.decompress(self.data), self.dtype).reshape(self.shape)


@dataclass(frozen=True)
class Delivery:
    """What an actor collected since the last exchange.

    Args:
        rows: ``(T, N, ...)``, if there are any; ``frames``: theirs, if they were compressed.
        episodes: games that ended, each with the number of its step among the T.
        steps: agent steps in it; ``seconds``: spent acting and stepping since the actor's start.
        messages: that came after the rows.
        version: of the weights that it acts with; ``silent_s``: since its last sign of life.
        failure: what the actor raised.
    """

    rows: Rows | None
    frames: Frames | None
    episodes: Sequence[tuple[int, Episode]]
    steps: int
    seconds: tuple[float, float]
    messages: Sequence[Ready | Paused]
    version: int
    silent_s: float
    failure: str | None

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        if self.rows is None:
            return 0
        columns = [getattr(self.rows, f.name) for f in fields(Rows) if f.name != "acting"]
        arrays = sum(column.nbytes for column in [*columns, *self.rows.acting.values()])
        return int(arrays) + (len(self.frames.data) if self.frames is not None else 0)

    def each(self) -> list[Rows]:
        """The rows of each step."""
        if self.rows is None:
            return []
        columns = {f.name: getattr(self.rows, f.name) for f in fields(Rows) if f.name != "acting"}
        if self.frames is not None:
            columns["frames"] = self.frames.array()
        return [
            Rows(
                **{name: column[t] for name, column in columns.items()},
                acting={name: column[t] for name, column in self.rows.acting.items()},
            )
            for t in range(len(self.rows.actions))
        ]


def stacked(rows: Sequence[Rows]) -> Rows:
    """Steps ``(N, ...)`` as one ``(T, N, ...)``."""
    columns = {f.name: np.stack([getattr(row, f.name) for row in rows]) for f in fields(Rows) if f.name != "acting"}
    return Rows(**columns, acting={name: np.stack([row.acting[name] for row in rows]) for name in rows[0].acting})


@dataclass
class _Collected:
    rows: list[Rows] = field(default_factory=list)
    episodes: list[tuple[int, Episode]] = field(default_factory=list)
    messages: list[Ready | Paused] = field(default_factory=list)
    steps: int = 0


class RayChannel:
    """What the actor's thread and the learner's calls share."""

    def __init__(self, job: RayJob, version: int):
        parallelism: Any = job.run.parallelism
        self.network: Network | None = None
        self._batch, self._compress = parallelism.batch_steps, parallelism.compress
        self._condition = threading.Condition()
        self._orders, self._stop = RayOrders(), False
        self._steps, self._rows = job.steps, job.rows
        self._collected, self._seconds = _Collected(), (0.0, 0.0)
        self._newest: tuple[int, Weights] | None = None
        self._version, self._beat, self._waits = version, time.monotonic(), False
        self._failure: str | None = None

    # Called by the actor.

    def send(self, message: Ready | Paused) -> None:
        if isinstance(message, Paused):
            message = Paused(message.number, {**message.state, "agent_steps": self._steps})
        with self._condition:
            self._collected.messages.append(message)
            self._condition.notify_all()

    def orders(self) -> Orders:
        self._beat = time.monotonic()
        with self._condition:
            orders, waiting = self._orders, self._collected
            steps = self._steps < orders.steps and self._rows < orders.rows and len(waiting.rows) < AHEAD * self._batch
            return Orders(self._stop, orders.pause, steps, orders.total + waiting.steps)

    def wait(self) -> None:
        with self._condition:
            self._waits = True
            self._condition.notify_all()
            self._condition.wait(ANSWER_S)
            self._waits = False

    def refresh(self) -> None:
        with self._condition:
            newest, self._newest = self._newest, None
        if newest is not None and self.network is not None:
            self._version = newest[0]
            load(self.network, *newest)

    def deliver(self, rows: Rows, episodes: list[Episode], seconds: Mapping[str, float]) -> None:
        steps = int(rows.transition.sum())
        with self._condition:
            found = self._collected
            found.episodes += [(len(found.rows), episode) for episode in episodes]
            found.rows.append(rows.on_host())
            found.steps += steps
            self._steps += steps
            self._rows += 1
            self._seconds = seconds["acting"], seconds["stepping"]
            if len(found.rows) >= self._batch:
                self._condition.notify_all()

    # Called by the learner.

    def exchange(self, orders: RayOrders, weights: tuple[int, Weights] | None) -> Delivery:
        """Give the newest orders and weights, and take what was collected, as soon as that is a batch."""
        with self._condition:
            self._orders = orders
            if weights is not None:
                self._newest = weights
            self._waits = False
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._is_ripe() or self._waits, ANSWER_S)
            if not self._is_ripe() and not self._collected.rows:
                self._condition.wait_for(self._is_ripe, BLOCKED_ANSWER_S)
            found, self._collected = self._collected, _Collected()
            self._condition.notify_all()
        rows, frames = stacked(found.rows) if found.rows else None, None
        if rows is not None and self._compress:
            rows.frames, frames = np.empty(0), Frames.of(rows.frames)
        return Delivery(
            rows, frames, found.episodes, found.steps, self._seconds, found.messages,
            self._version, time.monotonic() - self._beat, self._failure,
        )  # fmt: skip

    def _is_ripe(self) -> bool:
        found = self._collected
        return bool(found.messages or self._failure or len(found.rows) >= self._batch)

    def fail(self, failure: str) -> None:
        with self._condition:
            self._failure = failure
            self._condition.notify_all()

    def stop(self) -> None:
        with self._condition:
            self._stop = True
            self._condition.notify_all()


class RayActor:
    """A Ray actor; two of its methods may be called at the same time."""

    def __init__(self, job: RayJob, weights: tuple[int, Sequence[Any]]):
        import ray

        version, boxed = weights
        self._channel = RayChannel(job, version)
        newest = version, ray.get(boxed[0])
        self._thread = threading.Thread(target=self._act, args=(job, [newest]), daemon=True)
        self._thread.start()

    def exchange(self, orders: RayOrders, weights: tuple[int, Sequence[Any]] | None) -> Delivery:
        """See :meth:`RayChannel.exchange`; ``weights``: their version, and a reference to them in a list, so that they
        are fetched by those that lack them alone."""
        import ray

        return self._channel.exchange(orders, None if weights is None else (weights[0], ray.get(weights[1][0])))

    def stop(self) -> None:
        """End the environments."""
        self._channel.stop()
        self._thread.join(5.0)

    def _act(self, job: RayJob, newest: list[tuple[int, Weights]]) -> None:
        torch.set_num_threads(1)
        keep_memory(job.run.execution)
        execution = job.run.execution
        if machine.best_precision("cpu") == "fp32":  # the learner's device may have bf16, this processor not
            execution = replace(execution, precision="fp32")
        job = replace(job, run=replace(job.run, execution=execution))
        try:
            network = make_network(job.run, job.spec)
            load(network, *newest.pop())  # whose arrays the object store keeps as long as somebody has them
            self._channel.network = network
            work(job, network, torch.device("cpu"), self._channel)
        except FOREIGN as error:
            self._channel.fail(complaint(error))


def load(network: Network, version: int, weights: Weights) -> None:
    network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})
    network.version.fill_(version)


def weights_of(network: Network) -> Weights:
    """Copies of all weights, on the host."""
    return {name: (tensor.float() if tensor.is_floating_point() else tensor).cpu().numpy().copy()
            for name, tensor in network.state_dict().items()}  # fmt: skip
