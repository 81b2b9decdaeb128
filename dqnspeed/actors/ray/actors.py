"""Ray actors: the learner's side."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dqnspeed.actors.base import ActorArguments, Collected
from dqnspeed.actors.ray.cluster import ADDRESS, check_room, connected, reason_of
from dqnspeed.actors.ray.worker import STOP_TIMEOUT_S, Delivery, RayActor, RayArguments, RayCommand, weights_of
from dqnspeed.actors.remote import ActorHandle, LostError, NoActorsError, RemoteActors
from dqnspeed.actors.worker import COUNTERS
from dqnspeed.envs import Episode
from dqnspeed.system.messages import first_line

if TYPE_CHECKING:
    from dqnspeed.actors.ray import RayParallelism

WAIT_S = 0.01  # for new experience


class StepBudget:
    """Agent steps granted to actors, which together never exceed a limit."""

    def __init__(self, num_actors: int):
        self._granted = [0.0] * num_actors
        self.limit = 0.0  # agent steps of all actors

    def grant(self, index: int, made: int, room: float, ahead: float) -> float:
        """Return the agent steps at which an actor must wait.

        Args:
            made: agent steps that the actor has made.
            room: agent steps for which the buffer has room.
            ahead: agent steps that the actor may be ahead of the learner.
        """
        # Other actors get what this one cannot use: final frames of episodes take room, but are no agent steps.
        self._granted[index] = min(self._granted[index], made + room)
        wanted = min(ahead, room) - (self._granted[index] - made)
        self._granted[index] += max(0.0, min(wanted, self.limit - sum(self._granted)))
        return self._granted[index]

    def take_back(self, index: int, made: int) -> None:
        """Take back steps that were granted to an actor and not made."""
        self._granted[index] = made


class RayHandle(ActorHandle):
    """A Ray actor, and the pending call to it.

    Args:
        counters: counters of the actor, which the handle keeps up to date.
    """

    actor: Any = None

    def __init__(self, actors: RayActors, index: int, counters: Any):
        super().__init__(index)
        self._actors, self._common, self._counters = actors, actors.arguments, counters

    def start(self, state: Mapping[str, Any] | None, segment: int) -> None:
        actors, agent_steps = self._actors, int(self._counters["agent_steps"])
        self._seconds_before = np.array(self._counters["seconds"])
        actors.budget.take_back(self.index, agent_steps)
        common, rows = self._common, self._common.buffer.storage.rows_written(actors.envs(self.index).start)
        arguments = RayArguments(common.run, common.spec, self.index, state, segment, agent_steps, rows)
        with actors.in_reach():
            weights = actors.newest_weights()
            self._sent_version = weights[0]
            self.actor = actors.make.remote(arguments, weights)
            self._exchange()

    def messages(self) -> Iterator[Any]:
        ray = self._actors.ray
        ready, _ = ray.wait([self.pending], timeout=0)
        if not ready:
            return
        try:
            delivery: Delivery = ray.get(self.pending)
        except ray.exceptions.RayError as error:
            raise LostError(f"actor {self.index} was lost ({reason_of(error)}).") from error
        yield from self._delivered(delivery)
        if delivery.failure is not None:
            raise LostError(f"actor {self.index} raised:\n{delivery.failure}")
        self._exchange()

    def end(self) -> None:
        with contextlib.suppress(Exception):
            self._actors.ray.kill(self.actor)

    def _delivered(self, delivery: Delivery) -> Iterator[Any]:
        """Rows, episodes and messages of a delivery, in order."""
        self._actors.bytes_received += delivery.nbytes
        first_env = self._actors.envs(self.index).start
        episodes: dict[int, list[Episode]] = {}
        for step, episode in delivery.episodes:
            episodes.setdefault(step, []).append(replace(episode, env=first_env + episode.env))
        for step, rows in enumerate(delivery.steps(self._common.spec)):
            yield 0, rows
            yield from episodes.get(step, [])
        counters = self._counters
        counters["agent_steps"] += delivery.agent_steps
        counters["seconds"] = self._seconds_before + np.array(delivery.seconds)
        counters["version"], counters["heartbeat"] = delivery.version, time.monotonic() - delivery.silent_s
        yield from delivery.messages

    def _exchange(self) -> None:
        weights = self._actors.weights_newer_than(self._sent_version)
        if weights is not None:
            self._sent_version = weights[0]
        self.pending = self.actor.exchange.remote(self._actors.command(self), weights)


class RayActors(RemoteActors):
    """Ray actors with N environments each.

    One call to each actor is pending at any time. By it the actor gets a command and newer weights, and returns a batch
    of rows. A command grants the actor some steps in advance; all actors together never run ahead of the learner.
    """

    room_advice = "; ray status says whether the cluster has free CPUs"

    def __init__(self, parallelism: RayParallelism, arguments: ActorArguments):
        count, each = parallelism.num_actors, parallelism.cpus_per_actor
        super().__init__(arguments, np.zeros(count, COUNTERS))
        self._network, self._weights_every = arguments.network, parallelism.weights_every
        self._ahead = parallelism.steps_ahead * self._run.num_envs
        self.budget = StepBudget(count)
        self._pause_number = 0
        self._published: tuple[int, list[Any]] | None = None
        self._weights_bytes = self.bytes_received = self._bytes_sent = 0
        self._reported_at = time.monotonic()
        self.ray = connected(ADDRESS, parallelism.address, count * each)
        self.make = self.ray.remote(RayActor).options(
            num_cpus=each, max_concurrency=2, max_restarts=0, scheduling_strategy="SPREAD",
            runtime_env={"env_vars": {"PYTHONPATH": _python_path()}},
        )  # fmt: skip
        try:
            check_room(self.ray, ADDRESS, parallelism.address, each)
            self._start_all([RayHandle(self, index, self._counters[index]) for index in range(count)])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop every actor and leave the cluster; a local cluster ends."""
        with contextlib.suppress(Exception):
            stopping = [handle.actor.stop.remote() for handle in self._handles]
            self.ray.wait(stopping, num_returns=len(stopping), timeout=STOP_TIMEOUT_S)
        for handle in self._handles:
            handle.end()
        self.ray.shutdown()

    def command(self, handle: RayHandle) -> RayCommand:
        """Newest command for an actor."""
        envs, agent_steps = self.envs(handle.index), self._counters["agent_steps"]
        max_rows = float(self._buffer.rows_allowed()[envs.start])
        room = max(0.0, (max_rows - self._buffer.storage.rows_written(envs.start)) * len(envs))
        ahead = self._ahead if handle.ready_at is not None else 0.0
        max_steps = self.budget.grant(handle.index, int(agent_steps[handle.index]), room, ahead)
        return RayCommand(self._pause_number, max_steps, max_rows, int(agent_steps.sum()))

    def newest_weights(self) -> tuple[int, list[Any]]:
        """Version of the newest weights, and a list with a reference to them in the object store."""
        version = int(self._network.version)
        if self._published is None or self._published[0] != version:
            weights = weights_of(self._network)
            self._weights_bytes = sum(array.nbytes for array in weights.values())
            self._published = version, [self.ray.put(weights)]
        return self._published

    def weights_newer_than(self, version: int) -> tuple[int, list[Any]] | None:
        """Newest weights to send to an actor, if they are newer by ``parallelism.weights_every`` updates.

        Weights of version -1 are always replaced, since they lack the background.
        """
        newest = int(self._network.version)
        if newest == version or 0 <= version < newest < version + self._weights_every:
            return None
        weights = self.newest_weights()
        self._bytes_sent += self._weights_bytes
        return weights

    def metrics(self) -> dict[str, float]:
        """Metrics with the traffic to and from all actors, as if each had a machine of its own."""
        now = time.monotonic()
        mib_s = 2**20 * max(1e-9, now - self._reported_at)
        received, sent = self.bytes_received / mib_s, self._bytes_sent / mib_s
        self.bytes_received, self._bytes_sent, self._reported_at = 0, 0, now
        return {**super().metrics(), "perf/received_mib_per_second": received, "perf/sent_mib_per_second": sent}

    def _allow(self, limit: float) -> None:
        self.budget.limit = limit

    def _order_pause(self, number: int) -> None:
        self._pause_number = number

    def _wait(self) -> None:
        with self.in_reach():
            self.ray.wait([handle.pending for handle in self._handles], num_returns=1, timeout=WAIT_S)

    def _receive(self, collected: Collected) -> None:
        with self.in_reach():
            super()._receive(collected)

    @contextlib.contextmanager
    def in_reach(self) -> Iterator[None]:
        """Raise :class:`NoActorsError` if the cluster is lost inside."""
        try:
            yield
        except (self.ray.exceptions.RayError, ConnectionError) as error:
            full = isinstance(error, self.ray.exceptions.ObjectStoreFullError)
            what = "Ray's object store is full" if full else "the Ray cluster is lost"
            raise NoActorsError(f"{what} ({first_line(error)}).") from error


def _python_path() -> str:
    """Folders of modules that are not installed, for machines that see the same files."""
    paths = [Path(name or ".").absolute() for name in sys.path]
    installed = (Path(sys.prefix), Path(sys.base_prefix))
    return os.pathsep.join(str(path) for path in paths if not any(map(path.is_relative_to, installed)))
