"""Learner's side of actors in other processes, of any kind: they are counted, watched, paused and replaced."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

from dqnspeed.actors.base import ActorArguments, Collected, NewGames
from dqnspeed.actors.worker import Paused, Ready
from dqnspeed.algorithms import epsilon_at
from dqnspeed.buffers import Rows
from dqnspeed.envs import ActorError, Episode
from dqnspeed.envs.resumable import MAX_REPEAT_S
from dqnspeed.envs.workers import START_TIMEOUT_S

MAX_FAILED_STARTS = 3  # replacements of an actor in a row that are lost before their first step


class LostError(Exception):
    """An actor died, hangs or raised; the message says which."""


class NoActorsError(ActorError):
    """All actors are lost and could not be replaced in time; the run can be saved."""


class ActorHandle:
    """One actor as the learner sees it.

    Args:
        index: number of the actor.
        lost: handle of the actor that this one replaces.

    Attributes:
        ready_at: time when it was ready to act, or ``None``.
        state: its state at the present pause, or ``None``.
    """

    def __init__(self, index: int, lost: ActorHandle | None):
        self.index, self._starts_before = index, lost.failed_starts if lost else 0
        self.started_at, self._steps_at_start = time.monotonic(), self.agent_steps
        self.ready_at: float | None = None
        self.state: dict[str, Any] | None = None

    @property
    def failed_starts(self) -> int:
        """Number of actors in a row that have made no step, up to this one."""
        return self._starts_before + 1 if self.agent_steps == self._steps_at_start else 0

    @property
    def agent_steps(self) -> int:
        """Agent steps of the actor and of those that it replaced."""
        raise NotImplementedError

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds of acting and stepping of the actor and of those that it replaced."""
        raise NotImplementedError

    @property
    def version(self) -> int:
        """Version of the weights that the actor acts with."""
        raise NotImplementedError

    def messages(self) -> Iterator[Ready | Paused | Episode | tuple[int, Rows]]:
        """Newest messages, at most a bounded number; rows come with the index of their first environment.

        Raises:
            LostError: the actor is lost.
        """
        raise NotImplementedError

    def silent_s(self) -> float:
        """Seconds since the last sign of life."""
        raise NotImplementedError

    def where_it_hangs(self) -> str:
        """End of the sentence about an actor that hangs."""
        return "."

    def end(self) -> None:
        """Kill the actor if it has not ended."""
        raise NotImplementedError


Handle = TypeVar("Handle", bound=ActorHandle)


class RemoteActors(Generic[Handle]):
    """Base class of actors in other processes.

    An actor that is lost ends the run, or is replaced with ``parallelism.restart_actors``. Its successor starts new
    games, and the open episodes in the buffer are truncated, so that no transition crosses the gap.
    """

    waits_for_room: ClassVar[bool] = False  # a new actor may have to wait for a machine

    def __init__(self, arguments: ActorArguments):
        self._arguments, self._run, self._buffer = arguments, arguments.run, arguments.buffer
        self._count, self._num_envs = self._run.parallelism.num_actors, self._run.num_envs
        self._saved: Mapping[str, Any] = arguments.state or {}
        self.seconds = {"acting": 0.0, "stepping": 0.0}
        self.seconds["waiting"] = sum(saved["seconds"]["waiting"] for saved in self._saved.values())
        self.how = ""
        self._handles = dict[int, Handle]()
        self._started_at: float | None = None
        self._new_games: list[NewGames] = []  # with which the run begins
        self._replaced = 0
        self._cannot_go_on = ""  # why
        self._counted_steps, self._pauses = 0, 0
        self._last_ready = self._paused_at = time.monotonic()
        self._lags: list[float] = []  # updates, since the last report

    def _make_handle(self, index: int, state: Mapping[str, Any] | None, segment: int, lost: Handle | None) -> Handle:
        """Start an actor, which continues from ``state`` and sends :class:`Ready`.

        Args:
            segment: number for the seeds of new games.
            lost: handle of the actor that the new one replaces.
        """
        raise NotImplementedError

    def _allow(self, limit: float) -> None:
        """Let the actors step until ``limit`` agent steps and the rows that the buffer allows."""
        raise NotImplementedError

    def _order_pause(self, number: int) -> None:
        """Order pause ``number``; 0 ends a pause."""
        raise NotImplementedError

    def _wait(self) -> None:
        """Wait a moment, or until something has arrived."""
        raise NotImplementedError

    def start(self) -> Collected:
        self._started_at = time.monotonic()
        return self._counted(Collected(episodes=[*self._new_games]))

    def send(self) -> None:
        """Do nothing: actors step on their own."""

    def collect(self, limit: float, wait: bool) -> Collected:
        """Store what has arrived; with ``wait``, wait a moment for it.

        Raises:
            ActorError: an actor is lost and must not be replaced.
            NoActorsError: no actor has been left for ``parallelism.timeout_s``, or an on-policy algorithm misses one.
        """
        if self._cannot_go_on:
            timeout_s = self._run.parallelism.timeout_s
            raise NoActorsError(f"{self._cannot_go_on} (parallelism.timeout_s={timeout_s:g}).")
        self._allow(limit)
        if wait:
            begin = time.perf_counter()
            self._wait()
            self.seconds["waiting"] += time.perf_counter() - begin
        collected = Collected()
        self._receive(collected)
        return self._counted(collected)

    def pause(self) -> Collected:
        """Pause the actors; each sends its state after its last rows."""
        for handle in self._handles.values():
            handle.state = None
        self._pauses += 1
        self._order_pause(self._pauses)
        collected = Collected()
        while any(handle.state is None for handle in self._ready()):
            self._wait()
            self._receive(collected)
        self._paused_at = time.monotonic()
        return self._counted(collected)

    def state_dict(self) -> dict[str, Any]:
        """State of each actor; without games if the actor is not paused or is being replaced."""
        waiting = self.seconds["waiting"] / self._count
        return {
            str(handle.index): {
                **(handle.state or {}),
                "agent_steps": handle.agent_steps,
                "seconds": {**dict(zip(("acting", "stepping"), handle.seconds, strict=True)), "waiting": waiting},
            }
            for handle in self._handles.values()
        }

    def resume(self) -> None:
        self._order_pause(0)
        away = time.monotonic() - self._paused_at  # time in which nobody listened to new actors
        self._last_ready += away
        for handle in self._handles.values():
            handle.state = None
            handle.started_at += away

    def metrics(self) -> dict[str, float]:
        lags, self._lags = self._lags, []
        metrics = {"perf/actors": float(len(self._ready()))}
        if self._run.has_replay:  # an on-policy learner reports the lag of what it learns from
            metrics["perf/policy_lag"] = statistics.fmean(lags) if lags else math.nan
        return metrics

    def close(self) -> None:
        raise NotImplementedError

    def _ready(self) -> list[Handle]:
        return [handle for handle in self._handles.values() if handle.ready_at is not None]

    def _start_all(self) -> None:
        """Start all actors and wait until they are ready.

        Raises:
            ActorError: an actor is lost or not ready in time.
        """
        for index in range(self._count):
            saved = self._saved.get(str(index))
            state = saved if saved and "env" in saved else None
            self._handles[index] = self._make_handle(index, state, self._arguments.segment, None)
        self._counted_steps = sum(handle.agent_steps for handle in self._handles.values())
        patience = max(START_TIMEOUT_S, self._run.parallelism.timeout_s)
        if self._saved:
            patience += MAX_REPEAT_S * self._num_envs
        deadline, started = time.monotonic() + patience, Collected()
        while len(self._ready()) < self._count:
            self._receive(started)
            if time.monotonic() > deadline:
                missing = next(handle.index for handle in self._handles.values() if handle.ready_at is None)
                full = "; ray status says whether the cluster has free CPUs" if self.waits_for_room else ""
                raise ActorError(f"actor {missing} did not start within {patience:.0f} s{full}.")
            self._wait()
        new = [event for event in started.episodes if isinstance(event, NewGames)]
        self._new_games = sorted(new, key=lambda event: event.envs.start)

    def _receive(self, collected: Collected) -> None:
        timeout_s = self._run.parallelism.timeout_s
        for handle in list(self._handles.values()):
            try:
                for message in handle.messages():
                    self._take(handle, message, collected)
                if handle.ready_at is not None and self._started_at is not None:
                    silent = min(handle.silent_s(), time.monotonic() - max(self._started_at, handle.ready_at))
                    if silent > timeout_s:
                        raise LostError(
                            f"actor {handle.index} has been silent for {silent:.0f} s "
                            f"(parallelism.timeout_s={timeout_s}){handle.where_it_hangs()}"
                        )
            except LostError as error:
                self._replace(handle, str(error), collected)
        now = time.monotonic()
        if self._ready():
            self._last_ready = now
        elif self._replaced and now - self._last_ready > timeout_s:
            self._cannot_go_on = f"no actor was left for {now - self._last_ready:.0f} s"
        if self._replaced:
            self._look_after_new_actors(collected)

    def _look_after_new_actors(self, collected: Collected) -> None:
        """Replace a new actor that does not start, or end the run if that cannot help."""
        for handle in [handle for handle in self._handles.values() if handle.ready_at is None]:
            silent = time.monotonic() - handle.started_at
            if silent <= max(self._run.parallelism.timeout_s, START_TIMEOUT_S):
                continue
            if not self._run.has_replay:  # on-policy algorithms need rows of every environment
                self._cannot_go_on = f"actor {handle.index} could not be replaced within {silent:.0f} s"
            elif not self.waits_for_room:
                self._replace(handle, f"actor {handle.index} did not start within {silent:.0f} s.", collected)

    def _take(self, handle: Handle, message: Any, collected: Collected) -> None:
        envs = self._envs(handle.index)
        if isinstance(message, tuple):
            env_index, rows = message
            self._buffer.storage.append(rows, envs.start + env_index)
        elif isinstance(message, Episode):
            end_row = message.end_row or self._buffer.storage.rows(message.env)
            collected.episodes.append(replace(message, end_row=end_row))
        elif isinstance(message, Ready):
            handle.ready_at, self.how = time.monotonic(), message.how
            if not message.games_restored:
                collected.episodes.append(NewGames(envs))
                if self._started_at is None:  # else they were truncated when the actor was lost
                    self._buffer.truncate_open_episodes(envs.start, len(envs))
        elif isinstance(message, Paused) and message.number == self._pauses:
            handle.state = message.state

    def _replace(self, handle: Handle, reason: str, collected: Collected) -> None:
        """Replace a lost actor, or raise :class:`ActorError`."""
        # A failure before the run starts is a mistake in its configuration; later it may be a machine.
        allowed = MAX_FAILED_STARTS if self._started_at is not None else 0
        if not self._run.parallelism.restart_actors or handle.failed_starts > allowed:
            raise ActorError(reason if handle.ready_at is not None else f"{reason}\n(while it started)")
        if self._ready() == [handle]:
            self._last_ready = time.monotonic()
        self._handles.pop(handle.index).end()
        envs = self._envs(handle.index)
        self._buffer.storage.writer_gone(envs.start)
        self._buffer.truncate_open_episodes(envs.start, len(envs))
        self._replaced += 1
        collected.lost.append(reason)
        collected.episodes.append(NewGames(envs, begun=False))
        segment = 1000 * self._replaced + self._arguments.segment  # for games that differ from the lost actor's
        self._handles[handle.index] = self._make_handle(handle.index, None, segment, handle)

    def _envs(self, index: int) -> range:
        return range(index * self._num_envs, (index + 1) * self._num_envs)

    def _counted(self, collected: Collected) -> Collected:
        handles = self._handles.values()
        total = sum(handle.agent_steps for handle in handles)
        collected.agent_steps, self._counted_steps = total - self._counted_steps, total
        collected.epsilon = epsilon_at(total, self._run)
        acting, stepping = zip(*(handle.seconds for handle in handles), strict=True)
        self.seconds.update(acting=sum(acting), stepping=sum(stepping))
        if collected.agent_steps:
            version = int(self._arguments.network.version)
            self._lags.append(version - statistics.fmean(handle.version for handle in handles))
        return collected
