"""Clocks and means of a run, and their metrics."""

from __future__ import annotations

import contextlib
import heapq
import math
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dqnspeed.envs import Episode

WINDOW_S = 10.0  # window of the current speed
ALPHA = 0.98  # of the exponential means
MEAN_RETURNS = TRAINING_MEAN, EVALUATION_MEAN = "episode/return_mean_100", "eval/return_mean"


class Clock:
    """Seconds of training since :meth:`start`, the first environment step, without those in :meth:`stopped`."""

    def __init__(self) -> None:
        self._started: float | None = None
        self._before = 0.0

    def start(self) -> None:
        self._started = time.perf_counter()

    def now(self) -> float:
        return self._before + (0.0 if self._started is None else time.perf_counter() - self._started)

    def set(self, seconds: float) -> None:
        """Seconds trained before :meth:`start`, in a run that was resumed."""
        self._before = seconds

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Context in which the clock runs."""
        self.start()
        try:
            yield
        finally:
            self._before, self._started = self.now(), None

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Context in which the clock stands still."""
        has_started = self._started is not None
        self._before, self._started = self.now(), None
        try:
            yield
        finally:
            if has_started:
                self.start()


class Timer:
    """Sums the seconds spent in named parts of the loop: ``with timer("sampling"): ...``."""

    def __init__(self, parts: Sequence[str]):
        self.seconds = dict.fromkeys(parts, 0.0)

    def __call__(self, part: str) -> Timer:
        self._part = part
        return self

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds[self._part] += time.perf_counter() - self._begin


class Ema:
    """Exponential mean that starts at the first value."""

    value: float | None = None

    def add(self, value: float) -> None:
        self.value = value if self.value is None else ALPHA * self.value + (1 - ALPHA) * value


class Returns:
    """Unclipped returns of whole games: the last, the mean of the last ``window``, the exponential mean.

    Games count in the order in which they began, each once all that began before it have ended. If they counted as they
    end, short games would come first. A game begins when this process hears of the end of the game before it in its
    environment. Games that begin together count in the order of their environments.

    Attributes:
        mean: of the last ``window`` games that count (fewer at the start); NaN before the first.
    """

    def __init__(self, window: int):
        self.last: deque[Episode] = deque(maxlen=window)
        self.mean = math.nan
        self.count = 0  # games that count
        self.ended = 0  # games that have ended, also if they wait for older ones
        self.average = Ema()
        self._open = OrderedDict[int, int]()  # the numbers of the games in progress by environment, the oldest first
        self._waiting: list[tuple[int, Episode]] = []  # a heap of games that have ended, by their numbers
        self._begun = 0

    def begin(self, envs: Iterable[int]) -> None:
        """Games begin in ``envs``; games in progress there leave the order."""
        self.leave(envs)
        for env in envs:
            self._begin(env)

    def leave(self, envs: Iterable[int]) -> None:
        """Wait no longer for the games in progress in ``envs``, which can no longer end.

        Games of ``envs`` that began after the first of these and have ended leave too: they are the short ones of their
        time.
        """
        left = {env: self._open.pop(env) for env in envs if env in self._open}
        first = min(left.values(), default=self._begun + 1)
        self._waiting = [(n, game) for n, game in self._waiting if n < first or game.env not in left]
        heapq.heapify(self._waiting)

    def end(self, episode: Episode) -> Episode:
        """Note that a game ended and the next in its environment begins; returns the game with its number."""
        self.ended += 1
        episode = replace(episode, begun=self._open.pop(episode.env))
        self._begin(episode.env)
        heapq.heappush(self._waiting, (episode.begun, replace(episode, last_frame=None)))
        return episode

    def count_next(self) -> bool:
        """Count the next game in the order; False if one that began before it has not ended."""
        if not self._waiting or self._waiting[0][0] > next(iter(self._open.values()), math.inf):
            return False
        _, episode = heapq.heappop(self._waiting)
        self.count += 1
        self.last.append(episode)
        self._average_last()
        self.average.add(episode.episode_return)
        return True

    def _begin(self, env: int) -> None:
        self._begun += 1
        self._open[env] = self._begun

    def _average_last(self) -> None:
        self.mean = sum(e.episode_return for e in self.last) / len(self.last) if self.last else math.nan

    @property
    def full(self) -> bool:
        return len(self.last) == self.last.maxlen

    def state_dict(self) -> dict[str, Any]:
        return {
            "last": _table(self.last),
            "count": self.count,
            "ended": self.ended,
            "average": self.average.value,
            "waiting": _table(episode for _, episode in self._waiting),
            "open": np.array([*self._open.items()], np.int64).reshape(-1, 2),
            "begun": self._begun,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.last.extend(_episodes(state["last"]))
        self._average_last()
        self.count, self.ended, self.average.value = state["count"], state["ended"], state["average"]
        self._waiting = [(episode.begun, episode) for episode in _episodes(state["waiting"])]
        self._open = OrderedDict(state["open"].tolist())
        self._begun = state["begun"]

    def metrics(self) -> dict[str, float]:
        counts = {"episode/count": self.ended, "episode/counted": self.count}
        if not self.last:
            return {**counts}
        last = self.last[-1]
        return {
            **counts,
            "episode/return": last.episode_return,
            "episode/length": last.length,
            TRAINING_MEAN: self.mean,
            "episode/return_avg": self.average.value or 0.0,
        }


def _table(episodes: Iterable[Episode]) -> np.ndarray:
    rows = [(e.env, e.episode_return, e.length, e.begun) for e in episodes]
    return np.array(rows, np.float64).reshape(-1, 4)


def _episodes(table: np.ndarray) -> Iterator[Episode]:
    for env, episode_return, length, begun in table.tolist():
        yield Episode(int(env), episode_return, int(length), begun=int(begun))


class Moment(NamedTuple):
    """Counters of a run: seconds of training, agent steps, updates, and samples that these updates used.

    Samples are counted from the start or the resume of a run.
    """

    seconds: float
    steps: int
    updates: int
    samples: int


START = Moment(0, 0, 0, 0)


class Speed:
    """Current steps, updates and samples per step, over the last :data:`WINDOW_S` seconds or a little more."""

    def __init__(self, frame_skip: int, start: Moment = START):
        self._frame_skip = frame_skip
        self._moments = deque([start])

    def metrics(self, moment: Moment) -> dict[str, float]:
        """Metrics at a moment, which is added to the window."""
        if moment != self._moments[-1]:
            self._moments.append(moment)
        while len(self._moments) > 2 and moment.seconds - self._moments[1].seconds >= WINDOW_S:
            self._moments.popleft()
        return rates(self._moments[0], moment, self._frame_skip)


def rates(since: Moment, until: Moment, frame_skip: int) -> dict[str, float]:
    """``perf/*`` metrics between two moments of a run."""
    seconds, steps, updates, samples = (b - a for a, b in zip(since, until, strict=True))
    per_second = steps / seconds if seconds > 0 else 0.0
    return {
        "perf/steps_per_second": per_second,
        "perf/frames_per_second": per_second * frame_skip,
        "perf/updates_per_second": updates / seconds if seconds > 0 else 0.0,
        "perf/samples_per_step": samples / steps if steps else 0.0,
    }


def times(device: str, *parts: Mapping[str, float]) -> dict[str, float]:
    """``time/*`` metrics: seconds since the start in each part of the loop.

    With an asynchronous ``device`` they are ``time/host_*``: the host waits in whichever part needs the device's
    results next, so they do not show what the device did.
    """
    prefix = "time/" if device == "cpu" else "time/host_"
    return {f"{prefix}{name}": value for part in parts for name, value in part.items()}
