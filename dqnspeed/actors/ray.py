"""Actors on the machines of a Ray cluster: the learner's side."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dqnspeed.actors.base import ActorArguments, Actors
from dqnspeed.actors.process import Process
from dqnspeed.actors.ray_actor import AHEAD, Delivery, RayActor, RayJob, RayOrders, weights_of
from dqnspeed.actors.ray_cluster import check_address, check_room, connected, reason_of
from dqnspeed.actors.remote import LostError, NoActorsError, RemoteActors
from dqnspeed.actors.stepper import Collected
from dqnspeed.config.options import ConfigError, option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import ActorError
from dqnspeed.system.messages import first_line

ADDRESS = "parallelism.address"
WAIT_S = 0.01


class RayActors(RemoteActors):
    """Ray actors with N environments each.

    The learner has one call under way to each, by which the actor gets orders and newer weights and gives a batch of
    rows. How many steps an actor may do is granted with the orders, so that all together never run ahead of the
    learner. Weights are put into the object store once a version, when an actor asks that has older ones.
    """

    waits_for_room = True

    def __init__(self, arguments: ActorArguments):
        super().__init__(arguments)
        options: Any = self._run.parallelism
        self._batch, self._weights_every = options.batch_steps * self._num_envs, options.weights_every
        self._own_steps = [0] * self._count
        for actor, saved in self._states.items():
            self._own_steps[int(actor)] = saved["agent_steps"]
        self._granted: list[float] = list(self._own_steps)
        self._allowed, self._paused = 0.0, 0
        self._seconds: dict[tuple[int, int], tuple[float, float]] = {}  # by actor and start
        self._start_of = dict[int, int]()
        self._published: tuple[int, list[Any]] | None = None
        self._weights_bytes, self._moved, self._told = 0, [0, 0], time.monotonic()  # received and sent since then
        each, cpus = options.cpus_per_actor, self._count * options.cpus_per_actor
        self._ray = connected(ADDRESS, options.address, cpus)
        remote = self._ray.remote(RayActor)
        self._make = remote.options(
            num_cpus=each, max_concurrency=2, max_restarts=0, scheduling_strategy="SPREAD",
            runtime_env={"env_vars": {"PYTHONPATH": _python_path()}},
        )  # fmt: skip
        try:
            check_room(self._ray, ADDRESS, options.address, cpus, each)
            self._start_all()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop every actor, and leave the cluster; a local one ends."""
        links = [link for link in self._links.values() if isinstance(link, RayLink)]
        with contextlib.suppress(Exception):
            self._ray.wait([link.handle.stop.remote() for link in links], num_returns=len(links), timeout=5.0)
        for link in links:
            link.end()
        self._links = {}
        self._ray.shutdown()

    def orders(self, index: int) -> RayOrders:
        """What an actor is asked now, and may do."""
        lane, own_steps = index * self._num_envs, self._own_steps[index]
        rows = float(self._buffer.rows_allowed()[lane])
        room = max(0.0, (rows - self._buffer.rows(lane)) * self._num_envs)
        # What it could not use would be missing to the others; final frames take of its rows, too.
        self._granted[index] = min(self._granted[index], own_steps + room)
        most, left = min(AHEAD * self._batch, room), self._allowed - sum(self._granted)
        outstanding = self._granted[index] - own_steps
        if index in self._ready:
            self._granted[index] += max(0.0, min(most - outstanding, left))
        return RayOrders(self._paused, self._granted[index], rows, sum(self._own_steps))

    def weights(self) -> tuple[int, list[Any]]:
        """The version of the newest weights, and a reference to them in a list."""
        network = self._arguments.network
        version = int(network.version)
        if self._published is None or self._published[0] != version:
            weights = weights_of(network)
            self._weights_bytes = sum(array.nbytes for array in weights.values())
            self._published = version, [self._ray.put(weights)]
        return self._published

    def weights_after(self, version: int) -> tuple[int, list[Any]] | None:
        """The same, to be sent, if they are so much newer than ``version`` that they are worth it, or have what was
        measured before the first update and it (-1) has not."""
        now = int(self._arguments.network.version)
        if now == version or 0 <= version < now < version + self._weights_every:
            return None
        newest = self.weights()
        self._moved[1] += self._weights_bytes
        return newest

    def metrics(self) -> dict[str, float]:
        """With what came in and went out: each actor counted as if it had a machine of its own."""
        now = time.monotonic()
        received, sent = (moved / 2**20 / max(1e-9, now - self._told) for moved in self._moved)
        self._moved, self._told = [0, 0], now
        return {**super().metrics(), "perf/received_mib_per_second": received, "perf/sent_mib_per_second": sent}

    def deliver(self, index: int, delivery: Delivery) -> Iterator[Any]:
        """Count a delivery; yields its rows, games and messages in their order."""
        lane = index * self._num_envs
        self._moved[0] += delivery.nbytes
        by_step: dict[int, list[Any]] = {}
        for step, episode in delivery.episodes:
            by_step.setdefault(step, []).append(episode)
        for step, rows in enumerate(delivery.each()):
            yield 0, rows
            for episode in by_step.get(step, []):
                yield replace(episode, env=lane + episode.env)
        self._own_steps[index] += delivery.steps
        self._seconds[index, self._start_of[index]] = delivery.seconds
        if delivery.steps:
            self._lags.append(int(self._arguments.network.version) - delivery.version)
        yield from delivery.messages

    def _link(self, index: int, state: Mapping[str, Any] | None, segment: int) -> RayLink:
        self._granted[index], self._start_of[index] = self._own_steps[index], self._lost
        rows = self._buffer.rows(index * self._num_envs)
        made = self._arguments
        job = RayJob(made.run, made.spec, index, state, segment, self._own_steps[index], rows)
        with self._in_reach():
            return RayLink(self, self._ray, self._make, job)

    def _steps(self, index: int) -> int:
        return self._own_steps[index]

    def _allow(self, limit: float) -> None:
        self._allowed = limit

    def _pause(self, number: int) -> None:
        self._paused = number

    def _wait(self) -> None:
        pending = [link.pending for link in self._links.values() if isinstance(link, RayLink)]
        with self._in_reach():
            self._ray.wait(pending, num_returns=1, timeout=WAIT_S)

    def _receive(self, collected: Collected) -> None:
        with self._in_reach():
            super()._receive(collected)

    @contextlib.contextmanager
    def _in_reach(self) -> Iterator[None]:
        try:
            yield
        except (self._ray.exceptions.RayError, ConnectionError) as error:
            full = isinstance(error, self._ray.exceptions.ObjectStoreFullError)
            what = "Ray's object store is full" if full else "the Ray cluster is lost"
            raise NoActorsError(f"{what} ({first_line(error)}).") from error

    def _measured_seconds(self) -> Mapping[str, float]:
        found = self._seconds.values()
        return {"acting": sum(acting for acting, _ in found), "stepping": sum(stepping for _, stepping in found)}


class RayLink:
    """A Ray actor, and the call to it that is under way."""

    def __init__(self, actors: RayActors, ray: Any, make: Any, job: RayJob):
        self._actors, self._ray, self._index = actors, ray, job.index
        weights = actors.weights()
        self._version, self._silent_s = weights[0], 0.0
        try:
            self.handle = make.remote(job, weights)
        except (ConnectionError, ray.exceptions.RayError):
            raise
        except Exception as error:  # of Ray's, which pickles what it is given
            reason = first_line(error.__cause__ or error)[:200]  # its own has the whole job in it
            raise ActorError(f"parallelism=ray: an actor's job cannot be sent ({reason}).") from error
        self._exchange()

    def messages(self) -> Iterator[Any]:
        ready, _ = self._ray.wait([self.pending], timeout=0)
        if not ready:
            return
        try:
            delivery: Delivery = self._ray.get(self.pending)
        except self._ray.exceptions.RayError as error:
            raise LostError(f"actor {self._index} was lost ({reason_of(error)}).") from error
        yield from self._actors.deliver(self._index, delivery)
        if delivery.failure is not None:
            raise LostError(f"actor {self._index} raised:\n{delivery.failure}")
        self._silent_s = delivery.silent_s
        self._exchange()

    def watch(self, timeout_s: float, since: float) -> None:
        now = time.monotonic()
        silent = min(now - since, max(self._silent_s, now - self._asked))
        if silent > timeout_s:
            raise LostError(
                f"actor {self._index} has been silent for {silent:.0f} s (parallelism.timeout_s={timeout_s})."
            )

    def end(self) -> None:
        with contextlib.suppress(Exception):
            self._ray.kill(self.handle)

    def _exchange(self) -> None:
        newest = self._actors.weights_after(self._version)
        if newest is not None:
            self._version = newest[0]
        self.pending = self.handle.exchange.remote(self._actors.orders(self._index), newest)
        self._asked = time.monotonic()


def _python_path() -> str:
    """Where this process finds modules that are not installed, for machines that see the same files."""
    paths = [Path(name or ".").absolute() for name in sys.path]
    installed = (Path(sys.prefix), Path(sys.base_prefix))
    return os.pathsep.join(str(path) for path in paths if not any(map(path.is_relative_to, installed)))


@register("parallelism", "ray")
@dataclass(frozen=True)
class RayParallelism(Process):
    """Ray actors, on any number of machines, act while this process learns."""

    shares_memory = False

    address: str | None = option("the Ray cluster: HOST:PORT, ray://HOST:PORT, auto, or null: one of its own, here")
    cpus_per_actor: float = option("CPUs that each actor asks the cluster for", gt=0)
    batch_steps: int = option("steps of each environment in a message", ge=1, le=10_000)
    compress: bool = option("compress frames on their way")
    weights_every: int = option("updates that an actor's weights are behind before it is sent newer ones", ge=1)

    @property
    def steps_ahead(self) -> int:
        return AHEAD * self.batch_steps

    @property
    def elsewhere(self) -> bool:
        return self.address is not None

    def make(self, arguments: ActorArguments) -> Actors:
        return RayActors(arguments)

    def check(self, run: RunConfig) -> None:
        super().check(run)
        if self.transport == "queue":
            raise ConfigError("parallelism.transport=queue: belongs to parallelism=process; Ray has its own way.")

    def check_here(self) -> None:
        if importlib.util.find_spec("ray") is None:
            raise ConfigError("parallelism=ray: needs Ray; pip install 'dqnspeed[ray]' brings it.")
        check_address(ADDRESS, self.address)
