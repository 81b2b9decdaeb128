"""Actors in other processes, here or elsewhere, as the learner sees them: counted, paused, watched and replaced."""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Protocol

from dqnspeed.actors.base import ActorArguments
from dqnspeed.actors.loop import Paused, Ready
from dqnspeed.actors.stepper import Collected, NewGames
from dqnspeed.algorithms import epsilon_at
from dqnspeed.buffers import Rows
from dqnspeed.envs import ActorError, Episode
from dqnspeed.envs.resumable import REPEAT_S
from dqnspeed.envs.workers import START_TIMEOUT_S

TRIES = 3  # to replace an actor whose successors are lost before their first step


class LostError(Exception):
    """An actor died, hangs or raised; the message says so."""


class NoActorsError(ActorError):
    """All actors are lost, and none could be replaced in time; nothing else is wrong."""


class Link(Protocol):
    """An actor of the learner's."""

    def messages(self) -> Iterator[Ready | Paused | Episode | tuple[int, Rows]]:
        """What came in, at most a bounded part of it: rows with the first environment that they are of.

        Raises:
            LostError: the actor is lost.
        """

    def watch(self, timeout_s: float, since: float) -> None:
        """Raise :class:`LostError` if there was no sign of life for ``timeout_s``, all of it after ``since``."""

    def end(self) -> None:
        """Make sure that it has ended."""


class RemoteActors:
    """What all of them share. One that is lost ends the run, or is replaced with ``parallelism.restart_actors``.

    A replaced actor begins new games: the memory's open episodes are cut, so that no transition crosses the gap.
    """

    waits_for_room: ClassVar[bool] = False  # a new actor may take long to find a machine

    def __init__(self, arguments: ActorArguments):
        run = arguments.run
        self._arguments, self._run, self._buffer = arguments, run, arguments.buffer
        self._count, self._num_envs = run.parallelism.num_actors, run.num_envs
        self._epsilon_at = functools.partial(epsilon_at, run=run)
        self.seconds = {"acting": 0.0, "stepping": 0.0, "waiting": 0.0}
        self._links = dict[int, Link]()
        self._ready, self._steps_at_start = dict[int, float](), dict[int, int]()  # since when; agent steps
        self.how = ""
        self._begun: float | None = None
        self._new_games: list[NewGames] = []  # that begin with the run
        self._lost = 0
        self._started_at, self._gone = dict[int, float](), ""  # when each was started; why the run cannot go on
        self._vain = dict[int, int]()  # losses of each one after another, without a step in between
        self._states: dict[str, Any] = dict(arguments.state or {})
        for saved in self._states.values():
            self.seconds["waiting"] += saved["seconds"]["waiting"]
        self._drained, self._pauses, self._last_ready = 0, 0, time.monotonic()
        self._paused_at = self._last_ready
        self._lags: list[float] = []  # updates, since the last report

    def _link(self, index: int, state: Mapping[str, Any] | None, segment: int) -> Link:
        """Start the actor ``index``, which continues from ``state``; it says when it is ready."""
        raise NotImplementedError

    def _steps(self, index: int) -> int:
        """Agent steps of this actor and those that it replaced."""
        raise NotImplementedError

    def _allow(self, limit: float) -> None:
        """Let the actors step until ``limit`` and the rows that the memory allows."""
        raise NotImplementedError

    def _pause(self, number: int) -> None:
        """Order pause ``number``; 0 ends it."""
        raise NotImplementedError

    def _wait(self) -> None:
        """Wait a moment, or until something came in."""
        raise NotImplementedError

    def _measured_seconds(self) -> Mapping[str, float]:
        """Seconds that all actors spent acting and stepping."""
        raise NotImplementedError

    def begin(self) -> Collected:
        """Watch from now on; the first call of ``collect`` lets the actors step."""
        self._begun = time.monotonic()
        return self._counted(Collected(episodes=[*self._new_games]))

    def dispatch(self) -> None:
        """Nothing: actors step by themselves."""

    def collect(self, limit: float, wait: bool) -> Collected:
        """Take what came in; with ``wait``, wait a little for new experience first.

        Raises:
            ActorError: an actor is lost and not to be replaced.
            NoActorsError: all were lost ``parallelism.timeout_s`` ago, or one of those that an algorithm which learns
                in order waits for.
        """
        if self._gone:
            timeout = self._run.parallelism.timeout_s
            raise NoActorsError(f"{self._gone} (parallelism.timeout_s={timeout:g}).")
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
        self._states = {}
        self._pauses += 1
        self._pause(self._pauses)
        collected = Collected()
        while any(str(index) not in self._states for index in self._ready):
            self._wait()
            self._receive(collected)
        self._paused_at = time.monotonic()
        return self._counted(collected)

    def state_dict(self) -> dict[str, Any]:
        """By actor; of one that was not paused, or is being replaced, what it counted alone."""
        for index in range(self._count):
            seconds = dict.fromkeys(self.seconds, 0.0)
            saved = self._states.setdefault(str(index), {"agent_steps": self._steps(index), "seconds": seconds})
            saved["seconds"]["waiting"] = self.seconds["waiting"] / self._count
        return self._states

    def proceed(self) -> None:
        """Let the environments step again."""
        self._states = {}  # from here on they are of the past
        self._pause(0)
        away = time.monotonic() - self._paused_at  # as for an evaluation, while nobody listened to new ones
        self._last_ready += away
        self._started_at = {index: at + away for index, at in self._started_at.items()}

    def metrics(self) -> dict[str, float]:
        lags, self._lags = self._lags, []
        mean = statistics.fmean(lags) if lags else math.nan
        # That of an on-policy algorithm is the lag of what it learns from, which its learner reports.
        return {"perf/actors": len(self._ready), **({"perf/policy_lag": mean} if self._run.has_replay else {})}

    def _start_all(self) -> None:
        """Start all actors, and wait until they are ready; raises :class:`ActorError` if one is not."""
        self._drained = sum(map(self._steps, range(self._count)))
        for index in range(self._count):
            saved = self._states.get(str(index))
            self._start(index, saved if saved and "env" in saved else None, self._arguments.segment)
        patience = max(START_TIMEOUT_S, self._run.parallelism.timeout_s)
        if self._states:
            patience += REPEAT_S * self._num_envs
        deadline = time.monotonic() + patience
        started = Collected()
        while len(self._ready) < self._count:
            self._receive(started)
            if time.monotonic() > deadline:
                missing = min(set(range(self._count)) - set(self._ready))
                full = "; ray status says whether the cluster has free CPUs" if self.waits_for_room else ""
                raise ActorError(f"actor {missing} did not start within {patience:.0f} s{full}.")
            self._wait()
        self._states = {}
        news = [new for new in started.episodes if isinstance(new, NewGames)]
        self._new_games = sorted(news, key=lambda new: new.envs.start)

    def _start(self, index: int, state: Mapping[str, Any] | None, segment: int) -> None:
        self._steps_at_start[index], self._started_at[index] = self._steps(index), time.monotonic()
        self._links[index] = self._link(index, state, segment)

    def _receive(self, collected: Collected) -> None:
        timeout = self._run.parallelism.timeout_s
        for index, link in list(self._links.items()):
            try:
                for message in link.messages():
                    self._take(index, message, collected)
                if index in self._ready and self._begun is not None:
                    link.watch(timeout, max(self._begun, self._ready[index]))
            except LostError as error:
                self._lose(index, str(error), collected)
        now = time.monotonic()
        if self._ready:
            self._last_ready = now
        elif self._lost and now - self._last_ready > timeout:
            self._gone = f"no actor was left for {now - self._last_ready:.0f} s"
        for index in set(self._links) - set(self._ready) if self._lost else ():
            silent = now - self._started_at[index]
            if silent > max(timeout, START_TIMEOUT_S):
                if not self._run.has_replay:  # what learns from all lanes alike
                    self._gone = f"actor {index} could not be replaced within {silent:.0f} s"
                elif not self.waits_for_room:
                    self._lose(index, f"actor {index} did not start within {silent:.0f} s.", collected)

    def _take(self, index: int, message: Any, collected: Collected) -> None:
        lane = index * self._num_envs
        if isinstance(message, tuple):
            env, rows = message
            self._buffer.storage.append(rows, lane + env)
        elif isinstance(message, Episode):
            end_row = message.end_row or self._buffer.storage.rows(message.env)
            collected.episodes.append(replace(message, end_row=end_row))
        elif isinstance(message, Ready):
            self._ready[index] = time.monotonic()
            self.how = message.how
            if not message.games_restored:
                collected.episodes.append(NewGames(range(lane, lane + self._num_envs)))
                if self._begun is None:  # else they were cut when it was lost
                    self._buffer.truncate_open_episodes(lane, self._num_envs)
        elif isinstance(message, Paused) and message.number == self._pauses:
            self._states[str(index)] = message.state

    def _lose(self, index: int, how: str, collected: Collected) -> None:
        """Replace an actor that is lost, or raise :class:`ActorError`."""
        stepped = self._steps(index) > self._steps_at_start[index]
        self._vain[index] = 0 if stepped else self._vain.get(index, 0) + 1
        # What is wrong from the first is wrong with the run; later it may be a machine.
        patience = TRIES if self._begun is not None else 0
        if not self._run.parallelism.restart_actors or self._vain[index] > patience:
            raise ActorError(how if index in self._ready else f"{how}\n(while it started)")
        self._links.pop(index).end()
        if self._ready.pop(index, None) and not self._ready:
            self._last_ready = time.monotonic()
        self._states.pop(str(index), None)
        lane = index * self._num_envs
        self._buffer.storage.writer_gone(lane)
        self._buffer.truncate_open_episodes(lane, self._num_envs)
        self._lost += 1
        collected.lost.append(how)
        collected.episodes.append(NewGames(range(lane, lane + self._num_envs), begun=False))
        # Its games are others than those of the actor that was lost.
        self._start(index, None, 1000 * self._lost + self._arguments.segment)

    def _counted(self, collected: Collected) -> Collected:
        total = sum(map(self._steps, range(self._count)))
        collected.agent_steps = total - self._drained
        self._drained = total
        collected.epsilon = self._epsilon_at(total)
        self.seconds.update(self._measured_seconds())
        return collected
