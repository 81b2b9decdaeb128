"""Process side of actor processes: a worker acts in its environments until the learner stops it."""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import signal
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from dqnspeed.actors.stepper import EnvStepper, env_seeds
from dqnspeed.algorithms import epsilon_at, make_network
from dqnspeed.buffers import RingBuffer, Rows, SharedStorage
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import ActorError, EnvSpec, Episode, make_vector_env
from dqnspeed.execution.graph import CaptureError
from dqnspeed.execution.malloc import keep_memory
from dqnspeed.execution.precision import set_precision
from dqnspeed.execution.transfer import ToDevice
from dqnspeed.networks.base import Network
from dqnspeed.system import seeding
from dqnspeed.system.child_processes import end_with_parent, may_have_children, terminate_by_kill
from dqnspeed.system.messages import FOREIGN
from dqnspeed.system.signals import ENDING
from dqnspeed.system.streams import tolerate_output_errors

PAUSE_S = 0.0005  # between two reads of the learner's command
NO_VERSION = -2  # version before the first weights of the learner arrive


@dataclass(frozen=True)
class WorkerArguments:
    """Arguments of a worker in a local process or a Ray actor.

    Args:
        state: ``Paused.state`` to continue from.
        segment: number that makes seeds differ after each resume or restart.
    """

    run: RunConfig
    spec: EnvSpec
    index: int
    state: Mapping[str, Any] | None
    segment: int


@dataclass(frozen=True)
class Ready:
    """Message: the environments are made, and continue saved games if ``games_restored``."""

    games_restored: bool
    how: str  # how actions are chosen


@dataclass(frozen=True)
class Paused:
    """Message: the worker waits for the end of pause ``number``, and can continue from ``state``."""

    number: int
    state: dict[str, Any]


@dataclass(frozen=True)
class Failed:
    """Message: the worker raised."""

    reason: str


class ActorCommand(NamedTuple):
    """Command of the learner."""

    stop: bool
    pause: int  # number of the current pause, 0 while workers act
    may_step: bool
    total_steps: int  # agent steps of all actors


class Channel(Protocol):
    """Connection of a worker to the learner."""

    def send(self, message: Ready | Paused) -> None:
        """Send a message to the learner."""

    def command(self) -> ActorCommand:
        """Newest command; a call also updates the heartbeat."""

    def wait(self) -> None:
        """Wait a moment, or until there is a new command."""

    def refresh(self) -> None:
        """Load newer weights into the worker's network."""

    def deliver(self, rows: Rows, episodes: list[Episode], seconds: Mapping[str, float]) -> None:
        """Send a step and the episodes that ended with it.

        Args:
            seconds: seconds of acting and stepping since the start of the worker.
        """


class Worker:
    """Environments and policy of one actor process."""

    def __init__(self, arguments: WorkerArguments, network: Network, device: torch.device, channel: Channel):
        run, index = arguments.run, arguments.index
        seeding.seed_everything(env_seeds(run.seed, index, 1, arguments.segment)[0])
        self._run, self._channel = run, channel
        self._stepper = EnvStepper(
            run, arguments.spec, network, device, make_vector_env(run), index, run.parallelism.num_actors,
            arguments.state, arguments.segment,
        )  # fmt: skip

    def act(self) -> None:
        """Act until the learner stops the worker."""
        stepper, channel, paused = self._stepper, self._channel, 0
        with contextlib.closing(stepper):
            channel.send(Ready(stepper.games_restored, stepper.how))
            while not (command := channel.command()).stop:
                if command.pause not in (0, paused):  # the next pause may follow before the worker looks again
                    channel.send(Paused(command.pause, stepper.state_dict()))
                    paused = command.pause
                if command.pause or not command.may_step:
                    channel.wait()
                    continue
                channel.refresh()
                stepper.send(epsilon_at(command.total_steps, self._run))
                channel.deliver(*stepper.recv(), stepper.seconds)


def reason_of(error: BaseException) -> str:
    """Message for the learner: the text of a known error, else a traceback."""
    return str(error) if isinstance(error, (ActorError, ConfigError, CaptureError)) else traceback.format_exc()


class SharedWeights:
    """The learner's network in shared memory; workers act with it directly.

    Pickled for another process, it refers to the same memory, as does a :class:`WeightSnapshot`.
    """

    def __init__(self, network: Network):
        network.share_memory()
        self._network = network

    def network(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Network:
        """Network of a worker."""
        return self._network

    def refresh(self, network: Network) -> None:
        """Load newer weights into the worker's network; nothing to do for shared memory."""


class WeightSnapshot:
    """Copy of the learner's weights in shared memory of the host, for a learner on a GPU.

    Each worker has a network of its own, and loads the copy when it is newer. Workers may read at the same time; the
    learner writes when nobody reads. Both hold a lock on a file, which the system releases when its holder is killed.

    Args:
        lock: path of the file, in a folder that lasts as long as the workers.
    """

    def __init__(self, network: Network, lock: Path):
        self._copy = {name: t.to("cpu", copy=True).share_memory_() for name, t in network.state_dict().items()}
        self._version = network.version.clone().share_memory_()
        self._lock = lock
        self._to_device: ToDevice | None = None

    def network(self, run: RunConfig, spec: EnvSpec, device: torch.device) -> Network:
        network = make_network(run, spec)
        network.place(device, run.execution.channels_last)
        network.version.fill_(NO_VERSION)
        self.refresh(network)
        return network

    def refresh(self, network: Network) -> None:
        if int(network.version) == int(self._version):  # a single number needs no lock
            return
        weights = network.state_dict()
        if self._to_device is None:
            self._to_device = ToDevice(next(iter(weights.values())).device, pin_memory=True)
        with self._locked(fcntl.LOCK_SH):
            copies = self._to_device(self._copy)
            for name, tensor in weights.items():
                tensor.copy_(copies[name])
            network.version.copy_(self._version)

    def store(self, tensors: Mapping[str, Tensor], version: int) -> bool:
        """Replace the copy, or return False at once if a worker is reading."""
        try:
            with self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB):
                for name, tensor in tensors.items():
                    self._copy[name].copy_(tensor)
                self._version.fill_(version)
        except BlockingIOError:
            return False
        return True

    @contextlib.contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        with self._lock.open("a") as lock:  # closing the file releases its lock
            fcntl.flock(lock, how)
            yield


# Counters of one actor process, in memory that is shared with the learner.
COUNTERS = np.dtype(
    [
        ("agent_steps", np.int64),  # of all processes of this actor, one after another
        ("rows_allowed", np.float64),  # row of its environments at which it must wait for the learner
        ("version", np.int64),  # updates done to the weights that it acts with
        ("heartbeat", np.float64),  # time.monotonic() of its last sign of life
        ("seconds", np.float64, (2,)),  # of acting and stepping, as agent_steps
    ]
)


class SharedState:
    """Commands of the learner and counters of all actor processes, in shared memory.

    Values have no locks, since a killed process would never release one.
    """

    def __init__(self, context: Any, num_actors: int):
        self.stop = context.Value("b", 0, lock=False)
        self.pause = context.Value("q", 0, lock=False)  # number of the current pause, 0 while workers act
        self.limit = context.Value("d", 0, lock=False)  # agent steps of all actors at which they must wait
        self._counters = context.RawArray("q", num_actors * COUNTERS.itemsize // 8)

    @property
    def counters(self) -> np.ndarray:
        """Counters ``(num_actors,)`` with the columns of ``COUNTERS``."""
        return np.frombuffer(self._counters, COUNTERS)


@dataclass(frozen=True)
class ProcessArguments(WorkerArguments):
    """Arguments of an actor process.

    Args:
        buffers: shared arrays for the rows, with ``transport=shared_memory``.
    """

    weights: SharedWeights | WeightSnapshot
    device: torch.device
    buffers: SharedStorage | None
    shared: SharedState


def run_worker(arguments: ProcessArguments, pipe: Any) -> None:
    """Run an actor process: act until stopped, and send what is raised to the learner."""
    for ignored in (*ENDING, signal.SIGUSR2):  # the learner handles signals and stops the actors
        signal.signal(ignored, signal.SIG_IGN)
    end_with_parent()
    may_have_children()
    terminate_by_kill()
    tolerate_output_errors()
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    torch.set_num_threads(1)
    set_precision(arguments.run.execution)
    keep_memory(arguments.run.execution)
    try:
        network = arguments.weights.network(arguments.run, arguments.spec, arguments.device)
        Worker(arguments, network, arguments.device, PipeChannel(arguments, network, pipe)).act()
    except FOREIGN as error:
        with contextlib.suppress(OSError):  # the learner may already have closed the pipe
            pipe.send(Failed(reason_of(error)))
    finally:
        pipe.close()


class PipeChannel:
    """Channel to the learner on the same machine: a pipe of the worker's own, and shared memory.

    Commands, counters and weights are in shared memory. Rows are written into shared arrays, or, with
    ``transport=queue``, pickled and sent through the pipe one at a time, as through the queue of the book's chapter 9.
    """

    def __init__(self, arguments: ProcessArguments, network: Network, pipe: Any):
        self._pipe, self._shared, self._network, self._weights = pipe, arguments.shared, network, arguments.weights
        self._first_env = arguments.index * arguments.run.num_envs
        self._all_counters = arguments.shared.counters
        self._counters = self._all_counters[arguments.index]
        self._rings = None if arguments.buffers is None else RingBuffer(arguments.buffers)
        self._rows = 0 if self._rings is None else int(self._rings.written[self._first_env])
        self._seconds_before = np.array(self._counters["seconds"])

    def send(self, message: Ready | Paused) -> None:
        self._pipe.send(message)

    def command(self) -> ActorCommand:
        shared, own = self._shared, self._counters
        own["heartbeat"] = time.monotonic()
        total = int(self._all_counters["agent_steps"].sum())
        may_step = bool(total < shared.limit.value and self._rows < own["rows_allowed"])
        return ActorCommand(bool(shared.stop.value), shared.pause.value, may_step, total)

    def wait(self) -> None:
        time.sleep(PAUSE_S)

    def refresh(self) -> None:
        self._weights.refresh(self._network)
        self._counters["version"] = int(self._network.version)

    def deliver(self, rows: Rows, episodes: list[Episode], seconds: Mapping[str, float]) -> None:
        if self._rings is not None:
            self._rings.append(rows, self._first_env)
            self._rows += 1
        else:
            rows = rows.on_host()
            for i in range(len(rows.actions)):
                self._pipe.send((i, rows.select(i)))
        self._counters["agent_steps"] += int(rows.transition.sum())
        self._counters["seconds"] = self._seconds_before + np.array([seconds["acting"], seconds["stepping"]])
        for episode in episodes:
            self._pipe.send(replace(episode, env=self._first_env + episode.env, end_row=self._rows))
