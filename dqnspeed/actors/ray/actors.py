"""Ray actors: the learner's side."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dqnspeed.actors.base import ActorArguments, Collected
from dqnspeed.actors.ray import ADDRESS, RayParallelism
from dqnspeed.actors.ray.cluster import check_room, connected, reason_of
from dqnspeed.actors.ray.worker import MAX_BATCHES_AHEAD, Delivery, RayActor, RayArguments, RayCommand, weights_of
from dqnspeed.actors.remote import ActorHandle, LostError, NoActorsError, RemoteActors
from dqnspeed.envs import ActorError, Episode
from dqnspeed.networks.base import Network
from dqnspeed.system.messages import first_line

WAIT_S = 0.01  # for new experience
STOP_TIMEOUT_S = 5.0


class StepBudget:
    """Agent steps granted to actors, which together never exceed a limit.

    Args:
        agent_steps: agent steps that each actor has made.
    """

    def __init__(self, agent_steps: Sequence[int]):
        self._granted: list[float] = [*agent_steps]
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
        """Take back what an actor was granted, as it is lost."""
        self._granted[index] = made


class PublishedWeights:
    """The learner's weights in Ray's object store, put there once a version."""

    def __init__(self, ray: Any, network: Network, weights_every: int):
        self._ray, self._network, self._weights_every = ray, network, weights_every
        self._newest: tuple[int, list[Any]] | None = None
        self.nbytes = 0

    def newest(self) -> tuple[int, list[Any]]:
        """Version of the newest weights, and a list with a reference to them."""
        version = int(self._network.version)
        if self._newest is None or self._newest[0] != version:
            weights = weights_of(self._network)
            self.nbytes = sum(array.nbytes for array in weights.values())
            self._newest = version, [self._ray.put(weights)]
        return self._newest

    def newer_than(self, version: int) -> tuple[int, list[Any]] | None:
        """Newest weights, if they are newer by ``parallelism.weights_every`` updates.

        Version 0 is sent in any case, as it has the background that was measured before the first update.
        """
        now = int(self._network.version)
        if now == version or 0 <= version < now < version + self._weights_every:
            return None
        return self.newest()


class RayHandle(ActorHandle):
    """A Ray actor, and the pending call to it."""

    def __init__(self, actors: RayActors, arguments: RayArguments, lost: RayHandle | None, seconds: Sequence[float]):
        self._actors, self._agent_steps = actors, arguments.agent_steps
        super().__init__(arguments.index, lost)
        self._seconds_before, self._seconds = seconds, (0.0, 0.0)
        weights = actors.weights.newest()
        self._sent_version = self._version = weights[0]
        self._silent_s = 0.0
        try:
            self.actor = actors.make.remote(arguments, weights)
        except (ConnectionError, actors.ray.exceptions.RayError):
            raise
        except Exception as error:  # Ray's errors about pickling have many types
            reason = first_line(error.__cause__ or error)[:200]  # the error itself contains all arguments
            raise ActorError(f"parallelism=ray: an actor's job cannot be sent ({reason}).") from error
        self._exchange()

    @property
    def agent_steps(self) -> int:
        return self._agent_steps

    @property
    def seconds(self) -> tuple[float, float]:
        acting, stepping = (sum(pair) for pair in zip(self._seconds_before, self._seconds, strict=True))
        return acting, stepping

    @property
    def version(self) -> int:
        return self._version

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
        self._silent_s = delivery.silent_s
        self._exchange()

    def silent_s(self) -> float:
        return max(self._silent_s, time.monotonic() - self._asked)

    def end(self) -> None:
        with contextlib.suppress(Exception):
            self._actors.ray.kill(self.actor)

    def _delivered(self, delivery: Delivery) -> Iterator[Any]:
        """Rows, episodes and messages of a delivery, in order."""
        self._actors.bytes_received += delivery.nbytes
        first_env = self._actors.first_env(self.index)
        episodes: dict[int, list[Episode]] = {}
        for step, episode in delivery.episodes:
            episodes.setdefault(step, []).append(replace(episode, env=first_env + episode.env))
        for step, rows in enumerate(delivery.steps()):
            yield 0, rows
            yield from episodes.get(step, [])
        self._agent_steps += delivery.agent_steps
        self._seconds, self._version = delivery.seconds, delivery.version
        yield from delivery.messages

    def _exchange(self) -> None:
        actors = self._actors
        newer = actors.weights.newer_than(self._sent_version)
        if newer is not None:
            self._sent_version = newer[0]
            actors.bytes_sent += actors.weights.nbytes
        self.pending = self.actor.exchange.remote(actors.command(self), newer)
        self._asked = time.monotonic()


class RayActors(RemoteActors[RayHandle]):
    """Ray actors with N environments each.

    One call to each actor is pending at any time. By it the actor gets a command and newer weights, and returns a batch
    of rows. A command grants the actor some steps in advance; all actors together never run ahead of the learner.
    """

    waits_for_room = True

    def __init__(self, parallelism: RayParallelism, arguments: ActorArguments):
        super().__init__(arguments)
        self._ahead = MAX_BATCHES_AHEAD * parallelism.batch_steps * self._num_envs
        saved = [self._saved.get(str(index)) for index in range(self._count)]
        self._budget = StepBudget([one["agent_steps"] if one else 0 for one in saved])
        self._pause_number = 0
        self.bytes_received, self.bytes_sent, self._reported_at = 0, 0, time.monotonic()
        each, cpus = parallelism.cpus_per_actor, self._count * parallelism.cpus_per_actor
        self.ray = connected(ADDRESS, parallelism.address, cpus)
        self.weights = PublishedWeights(self.ray, arguments.network, parallelism.weights_every)
        self.make = self.ray.remote(RayActor).options(
            num_cpus=each, max_concurrency=2, max_restarts=0, scheduling_strategy="SPREAD",
            runtime_env={"env_vars": {"PYTHONPATH": _python_path()}},
        )  # fmt: skip
        try:
            check_room(self.ray, ADDRESS, parallelism.address, cpus, each)
            self._start_all()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop every actor and leave the cluster; a local cluster ends."""
        handles = list(self._handles.values())
        with contextlib.suppress(Exception):
            stopping = [handle.actor.stop.remote() for handle in handles]
            self.ray.wait(stopping, num_returns=len(handles), timeout=STOP_TIMEOUT_S)
        for handle in handles:
            handle.end()
        self._handles = {}
        self.ray.shutdown()

    def first_env(self, index: int) -> int:
        """Index of the first environment of an actor."""
        return self._envs(index).start

    def command(self, handle: RayHandle) -> RayCommand:
        """Newest command for an actor."""
        first_env = self.first_env(handle.index)
        max_rows = float(self._buffer.rows_allowed()[first_env])
        room = max(0.0, (max_rows - self._buffer.storage.rows(first_env)) * self._num_envs)
        ahead = self._ahead if handle.ready_at is not None else 0.0
        max_steps = self._budget.grant(handle.index, handle.agent_steps, room, ahead)
        return RayCommand(
            self._pause_number, max_steps, max_rows, sum(one.agent_steps for one in self._handles.values())
        )

    def metrics(self) -> dict[str, float]:
        """Metrics with the traffic to and from all actors, as if each had a machine of its own."""
        now = time.monotonic()
        mib_s = 2**20 * max(1e-9, now - self._reported_at)
        traffic = {
            "perf/received_mib_per_second": self.bytes_received / mib_s,
            "perf/sent_mib_per_second": self.bytes_sent / mib_s,
        }
        self.bytes_received, self.bytes_sent, self._reported_at = 0, 0, now
        return {**super().metrics(), **traffic}

    def _make_handle(
        self, index: int, state: Mapping[str, Any] | None, segment: int, lost: RayHandle | None
    ) -> RayHandle:
        saved = self._saved.get(str(index))
        agent_steps, seconds = 0, (0.0, 0.0)
        if lost is not None:
            agent_steps, seconds = lost.agent_steps, lost.seconds
        elif saved is not None:
            agent_steps, seconds = saved["agent_steps"], (saved["seconds"]["acting"], saved["seconds"]["stepping"])
        self._budget.take_back(index, agent_steps)
        arguments = RayArguments(
            self._run, self._arguments.spec, index, state, segment, agent_steps,
            self._buffer.storage.rows(self.first_env(index)),
        )  # fmt: skip
        with self._in_reach():
            return RayHandle(self, arguments, lost, seconds)

    def _allow(self, limit: float) -> None:
        self._budget.limit = limit

    def _order_pause(self, number: int) -> None:
        self._pause_number = number

    def _wait(self) -> None:
        pending = [handle.pending for handle in self._handles.values()]
        with self._in_reach():
            self.ray.wait(pending, num_returns=1, timeout=WAIT_S)

    def _receive(self, collected: Collected) -> None:
        with self._in_reach():
            super()._receive(collected)

    @contextlib.contextmanager
    def _in_reach(self) -> Iterator[None]:
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
