"""Actor processes: the actor's side, which runs in a spawned process."""

from __future__ import annotations

import contextlib
import faulthandler
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from dqnspeed.actors.loop import Job, Orders, Paused, Ready, complaint, work
from dqnspeed.actors.weights import HostWeights
from dqnspeed.algorithms import make_network
from dqnspeed.buffers import Rings, Rows, SharedBuffers
from dqnspeed.envs import Episode
from dqnspeed.execution.malloc import keep_memory
from dqnspeed.execution.precision import set_precision
from dqnspeed.networks.base import Network
from dqnspeed.system.child_processes import end_with_parent, may_have_children, terminate_by_kill
from dqnspeed.system.messages import FOREIGN
from dqnspeed.system.signals import ENDING
from dqnspeed.system.streams import tolerate_output_errors

PAUSE_S = 0.0005
# Of each actor, in memory that it shares with the learner.
SLOT = np.dtype(
    [
        ("agent_steps", np.int64),  # that it has collected
        ("rows_allowed", np.float64),  # of its environments, at which it must wait
        ("version", np.int64),  # updates done to the weights that it acts with
        ("heartbeat", np.float64),  # time.monotonic() of its last sign of life
        ("seconds", np.float64, (2,)),  # spent acting and stepping
    ]
)


@dataclass(frozen=True)
class Failure:
    """The traceback of what an actor raised."""

    traceback: str


class Controls:
    """Counters and flags that the learner and all actors share."""

    def __init__(self, context: Any, num_actors: int):
        # A plain flag: an event has a lock, which a killed actor may never release.
        self.stop = context.Value("b", 0, lock=False)
        self.pause = context.Value("q", 0, lock=False)  # the number of this pause, 0 while actors may act
        self.limit = context.Value("d", 0, lock=False)  # agent steps of all actors together
        self._slots = context.RawArray("q", num_actors * SLOT.itemsize // 8)

    @property
    def slots(self) -> np.ndarray:
        """The slot of each actor, ``(num_actors,)``, with the columns of ``SLOT``."""
        return np.frombuffer(self._slots, SLOT)


@dataclass(frozen=True)
class ActorJob(Job):
    """The arguments of an actor process."""

    weights: Network | HostWeights  # the learner's own, which is shared, or a copy
    device: torch.device
    buffers: SharedBuffers | None  # the learner's memory with transport=shared_memory
    controls: Controls
    dump_path: str


def run_actor(job: ActorJob, pipe: Any) -> None:
    """Entry point of an actor process: acts until stopped; what it raises is sent to the learner."""
    for ignored in (*ENDING, signal.SIGUSR2):  # the learner alone ends a run
        signal.signal(ignored, signal.SIG_IGN)
    end_with_parent()
    may_have_children()
    terminate_by_kill()
    tolerate_output_errors()
    dump = open(job.dump_path, "w")  # noqa: SIM115  held open for a crash of the interpreter itself
    faulthandler.enable(dump)
    faulthandler.register(signal.SIGUSR1, dump)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    torch.set_num_threads(1)
    set_precision(job.run.execution)
    keep_memory(job.run.execution)
    try:
        network = _network(job)
        work(job, network, job.device, PipeChannel(job, network, pipe))
    except FOREIGN as error:
        # At the end of a run the learner has closed its end of the pipe.
        with contextlib.suppress(OSError):
            pipe.send(Failure(complaint(error)))
    finally:
        pipe.close()


def _network(job: ActorJob) -> Network:
    """The network that the actor acts with."""
    if not isinstance(job.weights, HostWeights):
        return job.weights
    network = make_network(job.run, job.spec)
    network.place(job.device, job.run.execution.channels_last)
    network.version.fill_(-2)  # that of none
    job.weights.load_into(network)
    return network


class PipeChannel:
    """A pipe of the actor's own, and memory that it shares with the learner.

    Orders and counters are in shared memory, and so are the weights, or a copy of them. Rows go straight into the
    learner's buffer, or, with ``transport=queue``, through the pipe one at a time, pickled, as through the chapter's
    queue.
    """

    def __init__(self, job: ActorJob, network: Network, pipe: Any):
        self._pipe, self._controls, self._lane = pipe, job.controls, job.index * job.run.num_envs
        self._slots = job.controls.slots
        self._own = self._slots[job.index]
        self._network = network
        self._copy = job.weights if isinstance(job.weights, HostWeights) else None
        self._rings = None if job.buffers is None else Rings(job.buffers)
        self._rows = 0 if self._rings is None else self._rings.own_rows(self._lane)
        # Of an actor that this one is in the place of.
        self._acting, self._stepping = self._own["seconds"].tolist()

    def send(self, message: Ready | Paused) -> None:
        if isinstance(message, Paused):
            seconds = {**message.state["seconds"]}
            seconds["acting"] += self._acting
            seconds["stepping"] += self._stepping
            state = {**message.state, "seconds": seconds, "agent_steps": int(self._own["agent_steps"])}
            message = replace(message, state=state)
        self._pipe.send(message)

    def orders(self) -> Orders:
        controls = self._controls
        self._own["heartbeat"] = time.monotonic()
        total = int(self._slots["agent_steps"].sum())
        steps = total < controls.limit.value and self._rows < self._own["rows_allowed"]
        return Orders(bool(controls.stop.value), controls.pause.value, bool(steps), total)

    def wait(self) -> None:
        time.sleep(PAUSE_S)

    def refresh(self) -> None:
        """Load a newer copy, if the network is not the learner's own."""
        if self._copy is not None:
            self._copy.load_into(self._network)
        self._own["version"] = int(self._network.version)

    def deliver(self, rows: Rows, episodes: list[Episode], seconds: Mapping[str, float]) -> None:
        if self._rings is not None:
            self._rings.append(rows, self._lane)
            self._rows += 1
        else:
            rows = rows.on_host()
            for i in range(len(rows.actions)):
                self._pipe.send((i, rows.one(i)))
        self._own["agent_steps"] += int(rows.transition.sum())
        self._own["seconds"] = self._acting + seconds["acting"], self._stepping + seconds["stepping"]
        for episode in episodes:
            self._pipe.send(replace(episode, env=self._lane + episode.env, end_row=self._rows))
