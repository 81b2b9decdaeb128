"""Learner's side of actors in other processes, of any kind: they are counted, watched, paused and replaced."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

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
    """An actor is lost and not replaced, or none is left; the run can be saved."""


class ActorHandle:
    """One actor as the learner sees it; if the actor is lost, the handle starts another.

    Attributes:
        ready_at: time when the actor was ready to act, or ``None``.
        state: state of the actor at the present pause, or ``None``.
        steps_at_start: agent steps before the actor was started.
        failed_starts: actors in a row that were lost before their first step.
    """

    def __init__(self, index: int):
        self.index = index
        self.ready_at: float | None = None
        self.state: dict[str, Any] | None = None
        self.started_at, self.steps_at_start, self.failed_starts = 0.0, 0, 0

    def start(self, state: Mapping[str, Any] | None, segment: int) -> None:
        """Start an actor, which continues from ``state`` and sends :class:`Ready`.

        Args:
            segment: number for the seeds of new games.
        """
        raise NotImplementedError

    def messages(self) -> Iterator[Ready | Paused | Episode | tuple[int, Rows]]:
        """Newest messages, at most a bounded number; rows come with the index of their first environment.

        Raises:
            LostError: the actor is lost.
        """
        raise NotImplementedError

    def where_it_hangs(self) -> str:
        """End of the sentence about an actor that hangs."""
        return "."

    def end(self) -> None:
        """Kill the actor if it has not ended."""
        raise NotImplementedError


class RemoteActors:
    """Base class of actors in other processes.

    An actor that is lost ends the run, or is replaced with ``parallelism.restart_actors``. The new actor starts new
    games, and the open episodes in the buffer are truncated, so that no transition crosses the gap.

    Args:
        counters: array ``(num_actors,)`` of ``COUNTERS``, which the actors or their handles keep up to date.
    """

    room_advice: ClassVar[str] = ""  # what to do if actors wait for room on a machine; empty if they never do

    def __init__(self, arguments: ActorArguments, counters: np.ndarray):
        self.arguments, self._run, self._buffer = arguments, arguments.run, arguments.buffer
        self._counters = counters
        self._saved: Mapping[str, Any] = arguments.state or {}
        waiting = 0.0
        for index, saved in self._saved.items():
            acting, stepping, waited = (saved["seconds"][name] for name in ("acting", "stepping", "waiting"))
            own = counters[int(index)]
            own["agent_steps"], own["seconds"], waiting = saved["agent_steps"], (acting, stepping), waiting + waited
        self.seconds = {"acting": 0.0, "stepping": 0.0, "waiting": waiting}
        self.how = ""
        self._handles: Sequence[Any] = ()  # of one subclass of ActorHandle
        self._started_at: float | None = None
        self._new_games: list[NewGames] = []  # with which the run begins
        self._replaced = 0
        self._cannot_go_on = ""  # why
        self._counted_steps, self._pauses = int(counters["agent_steps"].sum()), 0
        self._paused_s = self._paused_at = 0.0
        self._last_ready = self._now()
        self._lags: list[float] = []  # updates, since the last report

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
        self._started_at = self._now()
        return self._counted(Collected(episodes=[*self._new_games]))

    def send(self) -> None:
        """Do nothing: actors step on their own."""

    def collect(self, limit: float, wait: bool) -> Collected:
        """Store what has arrived; with ``wait``, wait a moment for it.

        Raises:
            NoActorsError: an actor is lost and must not be replaced, no actor has been left for too long, or an
                on-policy algorithm misses one.
        """
        if self._cannot_go_on:
            raise NoActorsError(self._cannot_go_on)
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
        self._pauses += 1
        self._order_pause(self._pauses)
        collected = Collected()
        while not self._cannot_go_on and any(handle.state is None for handle in self._ready()):
            self._wait()
            self._receive(collected)
        self._paused_at = time.monotonic()
        return self._counted(collected)

    def state_dict(self) -> dict[str, Any]:
        """State of each actor; without games if the actor is not paused or is being replaced."""
        waiting, state = self.seconds["waiting"] / len(self._handles), dict[str, Any]()
        for handle in self._handles:
            own = self._counters[handle.index]
            acting, stepping = own["seconds"].tolist()
            seconds = {"acting": acting, "stepping": stepping, "waiting": waiting}
            counted = {"agent_steps": int(own["agent_steps"]), "seconds": seconds}
            state[str(handle.index)] = {**(handle.state or {}), **counted}
        return state

    def resume(self) -> None:
        self._order_pause(0)
        self._paused_s += time.monotonic() - self._paused_at
        for handle in self._handles:
            handle.state = None

    def envs(self, index: int) -> range:
        """Environments of an actor."""
        return range(index * self._run.num_envs, (index + 1) * self._run.num_envs)

    def metrics(self) -> dict[str, float]:
        lags, self._lags = self._lags, []
        metrics = {"perf/actors": float(len(self._ready()))}
        if self._run.has_replay:  # an on-policy learner reports the lag of what it learns from
            metrics["perf/policy_lag"] = float(np.mean(lags)) if lags else math.nan
        return metrics

    @property
    def _start_timeout_s(self) -> float:
        """Most seconds for an actor to be ready."""
        return max(START_TIMEOUT_S, self._run.parallelism.timeout_s)

    def _now(self) -> float:
        """Seconds of a clock that stands still during pauses, in which nobody listens to new actors."""
        return time.monotonic() - self._paused_s

    def _ready(self) -> list[ActorHandle]:
        return [handle for handle in self._handles if handle.ready_at is not None]

    def _start_all(self, handles: Sequence[ActorHandle]) -> None:
        """Start all actors and wait until they are ready.

        Raises:
            ActorError: an actor is lost or not ready in time.
        """
        self._handles = handles
        for handle in handles:
            saved = self._saved.get(str(handle.index))
            self._start(handle, saved if saved and "env" in saved else None, self.arguments.segment)
        patience = self._start_timeout_s
        if self._saved:
            patience += MAX_REPEAT_S * self._run.num_envs
        deadline, started = time.monotonic() + patience, Collected()
        while len(ready := self._ready()) < len(handles):
            self._receive(started)
            if time.monotonic() > deadline:
                missing = next(handle.index for handle in handles if handle not in ready)
                raise ActorError(f"actor {missing} did not start within {patience:.0f} s{self.room_advice}.")
            self._wait()
        new = [event for event in started.episodes if isinstance(event, NewGames)]
        self._new_games = sorted(new, key=lambda event: event.envs.start)

    def _start(self, handle: ActorHandle, state: Mapping[str, Any] | None, segment: int) -> None:
        handle.started_at, handle.steps_at_start = self._now(), int(self._counters[handle.index]["agent_steps"])
        handle.ready_at = handle.state = None
        handle.start(state, segment)

    def _receive(self, collected: Collected) -> None:
        for handle in self._handles:
            try:
                for message in handle.messages():
                    self._take(handle, message, collected)
                self._watch(handle)
            except LostError as error:
                self._replace(handle, str(error), collected)
            if self._cannot_go_on:
                break
        if self._ready():
            self._last_ready = self._now()
        elif (
            self._replaced
            and not self._cannot_go_on
            and (absent := self._now() - self._last_ready) > self._start_timeout_s
        ):
            self._cannot_go_on = f"no actor was left for {absent:.0f} s."
        if self._cannot_go_on:  # nothing changes from now on, so that the run can be saved
            for handle in self._handles:
                handle.end()

    def _watch(self, handle: ActorHandle) -> None:
        """Raise :class:`LostError` if an actor has been silent, or not ready, for too long."""
        index, timeout_s = handle.index, self._run.parallelism.timeout_s
        if handle.ready_at is None:
            absent = self._now() - handle.started_at
            if not self._replaced or absent <= self._start_timeout_s:
                return
            if not self._run.has_replay:  # on-policy algorithms need rows of every environment
                self._cannot_go_on = f"actor {index} could not be replaced within {absent:.0f} s."
            elif not self.room_advice:
                raise LostError(f"actor {index} did not start within {absent:.0f} s.")
        elif self._started_at is not None:
            silent = time.monotonic() - float(self._counters[index]["heartbeat"])
            silent = min(silent, self._now() - max(self._started_at, handle.ready_at))
            if silent > timeout_s:
                raise LostError(
                    f"actor {index} has been silent for {silent:.0f} s (parallelism.timeout_s={timeout_s})"
                    f"{handle.where_it_hangs()}"
                )

    def _take(self, handle: ActorHandle, message: Any, collected: Collected) -> None:
        envs = self.envs(handle.index)
        if isinstance(message, tuple):
            env_index, rows = message
            self._buffer.storage.append(rows, envs.start + env_index)
        elif isinstance(message, Episode):
            end_row = message.end_row or self._buffer.storage.rows_written(message.env)
            collected.episodes.append(replace(message, end_row=end_row))
        elif isinstance(message, Ready):
            handle.ready_at, self.how = self._now(), message.how
            if not message.games_restored:
                collected.episodes.append(NewGames(envs))
                if self._started_at is None:  # else they were truncated when the actor was lost
                    self._buffer.truncate_open_episodes(envs.start, len(envs))
        elif isinstance(message, Paused) and message.number == self._pauses:
            handle.state = message.state

    def _replace(self, handle: ActorHandle, reason: str, collected: Collected) -> None:
        """Replace a lost actor, or end the run if it must not be replaced; before the run raise :class:`ActorError`."""
        has_stepped = self._counters[handle.index]["agent_steps"] > handle.steps_at_start
        handle.failed_starts = 0 if has_stepped else handle.failed_starts + 1
        # A failure before the run starts is a mistake in its configuration; later it may be a machine.
        allowed = MAX_FAILED_STARTS if self._started_at is not None else 0
        if not self._run.parallelism.restart_actors or handle.failed_starts > allowed:
            why = reason if handle.ready_at is not None else f"{reason}\n(while it started)"
            if self._started_at is None:
                raise ActorError(why)
            self._cannot_go_on = why
            return
        handle.end()
        if self._ready() == [handle]:
            self._last_ready = self._now()
        envs = self.envs(handle.index)
        self._buffer.storage.writer_gone(envs.start)
        self._buffer.truncate_open_episodes(envs.start, len(envs))
        self._replaced += 1
        collected.lost.append(reason)
        collected.episodes.append(NewGames(envs, begun=False))
        # A segment of its own, since its games must differ from the games of the lost actor.
        self._start(handle, None, 1000 * self._replaced + self.arguments.segment)

    def _counted(self, collected: Collected) -> Collected:
        counters = self._counters
        total = int(counters["agent_steps"].sum())
        collected.agent_steps, self._counted_steps = total - self._counted_steps, total
        collected.epsilon = epsilon_at(total, self._run)
        self.seconds["acting"], self.seconds["stepping"] = counters["seconds"].sum(axis=0).tolist()
        if collected.agent_steps:
            self._lags.append(int(self.arguments.network.version) - float(counters["version"].mean()))
        return collected
