"""Clocks and means of a run, and their metrics."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dqnspeed.envs import Episode

WINDOW_S = 10.0  # window of the current speed
ALPHA = 0.98  # of the exponential means


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
    def stopped(self) -> Iterator[None]:
        """The clock stands still inside."""
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
    """Unclipped returns of whole games: the last, the mean of the last ``window``, the exponential mean."""

    def __init__(self, window: int):
        self.last: deque[Episode] = deque(maxlen=window)
        self.count = 0
        self.average = Ema()

    def add(self, episode: Episode) -> None:
        self.count += 1
        self.last.append(episode)
        self.average.add(episode.episode_return)

    @property
    def mean(self) -> float:
        """Mean of the last ``window`` games (fewer at the start); NaN before the first."""
        return sum(e.episode_return for e in self.last) / len(self.last) if self.last else float("nan")

    @property
    def full(self) -> bool:
        return len(self.last) == self.last.maxlen

    def state_dict(self) -> dict[str, Any]:
        last = [[e.env, e.episode_return, e.length] for e in self.last]
        return {"last": last, "count": self.count, "average": self.average.value}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.last.extend(Episode(*values) for values in state["last"])
        self.count, self.average.value = state["count"], state["average"]

    def metrics(self) -> dict[str, float]:
        if not self.last:
            return {"episode/count": 0}
        last = self.last[-1]
        return {
            "episode/count": self.count,
            "episode/return": last.episode_return,
            "episode/length": last.length,
            "episode/return_mean_100": self.mean,
            "episode/return_avg": self.average.value or 0.0,
        }


class Speed:
    """Current steps, updates and replay ratio, over the last :data:`WINDOW_S` seconds."""

    def __init__(self, batch_size: int, frame_skip: int, seconds: float = 0, steps: int = 0, updates: int = 0):
        self._batch_size, self._frame_skip = batch_size, frame_skip
        self._samples: deque[tuple[float, int, int]] = deque([(seconds, steps, updates)])

    def metrics(self, seconds: float, steps: int, updates: int) -> dict[str, float]:
        """Metrics now; also adds this moment to the window."""
        self._samples.append((seconds, steps, updates))
        while len(self._samples) > 2 and seconds - self._samples[1][0] >= WINDOW_S:
            self._samples.popleft()
        then, steps_then, updates_then = self._samples[0]
        return rates(seconds - then, steps - steps_then, updates - updates_then, self._batch_size, self._frame_skip)


def rates(seconds: float, steps: int, updates: int, batch_size: int, frame_skip: int) -> dict[str, float]:
    """``perf/*`` metrics of a segment of a run."""
    per_second = steps / seconds if seconds > 0 else 0.0
    return {
        "perf/steps_per_second": per_second,
        "perf/frames_per_second": per_second * frame_skip,
        "perf/updates_per_second": updates / seconds if seconds > 0 else 0.0,
        "perf/replay_ratio": updates * batch_size / steps if steps else 0.0,
    }


def times(device: str, *parts: Mapping[str, float]) -> dict[str, float]:
    """``time/*`` metrics: seconds since the start in each part of the loop.

    With an asynchronous ``device`` they are ``time/host_*``: the host waits in whichever part needs the device's
    results next, so they do not show what the device did.
    """
    prefix = "time/" if device == "cpu" else "time/host_"
    return {f"{prefix}{name}": value for part in parts for name, value in part.items()}
