"""Counters, clocks and returns of a run."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

from dqnspeed.actors import Collected, NewGames
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import Episode
from dqnspeed.system.startup import startup
from dqnspeed.tracking.metrics import START, Clock, Ema, Moment, Returns, Speed, Timer, rates
from dqnspeed.tracking.run_folder import EVALUATING

ROUNDING_S = 0.001  # of the times in metrics.jsonl


log = logging.getLogger(__name__)


class Progress:
    """Counters, clocks and returns of a run."""

    def __init__(self, run: RunConfig, benchmark: bool = True, begun_again: bool = False):
        self.benchmark = benchmark  # whether the run has the machine for itself
        self.begun_again = begun_again  # whether it restarted after a kill before its first checkpoint
        self.clock, self.timer = Clock(), Timer(("sampling", "updating"))
        self.eval_clock = Clock()  # runs during evaluations, while ``clock`` stands still
        # Kind of updates, kind of acting, and device of experience, for the summary.
        self.execution, self.acting, self.replay_device = "", "", ""
        self.returns = Returns(run.stop.window)
        self.startup = dict[str, float]()  # seconds before the first step, by part
        self.busy: str | None = None  # why other load on this machine slows the run down
        self.agent_steps = 0
        self.lost_actors = 0  # actors that were replaced
        self.time_to_solve_s: float | None = None
        self.time_to_solve_avg_s: float | None = None
        self._reward_bound = run.stop.reward_bound
        self._bound = math.inf if run.stop.reward_bound is None else run.stop.reward_bound
        self.resumed_at: list[int] = []  # agent steps
        self.lost_s = 0.0  # seconds of training that kills lost
        self.time_is_lower_bound = False  # more may be lost
        # The ends of the first and of the newest round of updates of this segment of the run. Steps and updates between
        # two ends belong together, so that ratios and speeds are of one interval.
        self._first_learnt: Moment | None = None
        self._last_learnt: Moment | None = None
        self._epsilon = 1.0
        self._loss = Ema()
        self._every, self._next_report = run.tracking.report_every_s, 0.0
        self._frame_skip = run.wrappers.frame_skip
        self._speed = Speed(self._frame_skip)
        self._segment_start = START

    def start(self) -> None:
        """Start the clock at the first environment step."""
        startup.switch("actors")
        self.startup = dict(startup.seconds)
        self.clock.start()

    def add(self, collected: Collected) -> None:
        """Count new steps and lost actors."""
        self.agent_steps += collected.agent_steps
        for how in collected.lost:
            log.warning("%s\nIt is replaced, and the run goes on.", how)
        self.lost_actors += len(collected.lost)
        self._epsilon = collected.epsilon

    def new_episodes(self, collected: Collected) -> Iterator[tuple[int, Episode]]:
        """Yield the episodes that ended, with their numbers from 1, and count the episodes whose turn it is.

        ``time_to_solve_avg_s`` is the time at which the exponential mean first reached the bound. It ends a run of the
        book's programs (PTAN). One good first game may be enough, so the exponential mean does not end a run here.
        """
        for event in collected.episodes:
            if isinstance(event, NewGames):
                (self.returns.begin if event.begun else self.returns.leave)(event.envs)
                continue
            episode = self.returns.end(event)
            while self.returns.count_next():
                average = self.returns.average.value
                if self.time_to_solve_avg_s is None and average is not None and self._bound <= average < math.inf:
                    self.time_to_solve_avg_s = self.clock.now()
            yield self.returns.ended, episode

    @property
    def wall_time_s(self) -> float:
        """Seconds of training and of evaluations."""
        return self.clock.now() + self.eval_clock.now()

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Context of an evaluation, in which the training clock stands still."""
        with self.clock.stopped(), self.eval_clock.running():
            yield

    def learnt(self, updates: int, samples: int) -> None:
        """Record the end of a round of updates; ``samples`` were used since the start or the resume."""
        self._last_learnt = Moment(self.clock.now(), self.agent_steps, updates, samples)
        self._first_learnt = self._first_learnt or self._last_learnt

    def warn_busy(self, sentence: str | None) -> None:
        """Log a warning about the load of this machine; the summary keeps the first."""
        if sentence is not None:
            log.warning("%s", sentence)
            self.busy = self.busy or sentence

    def solved(self) -> None:
        self.time_to_solve_s = self.clock.now()

    def report_is_due(self) -> bool:
        """Whether a report is due, by wall clock, which also runs during evaluations."""
        return time.monotonic() >= self._next_report

    def metrics(self, stats: Mapping[str, float], updates: int) -> dict[str, float]:
        """Metrics of a report; NaN where there is no value."""
        self._next_report = time.monotonic() + self._every
        if math.isfinite(stats["train/loss"]):
            self._loss.add(stats["train/loss"])
        return {
            **self.returns.metrics(),
            **stats,
            "train/loss_avg": math.nan if self._loss.value is None else self._loss.value,
            "train/epsilon": self._epsilon,
            "train/updates": updates,
            **({EVALUATING: evaluating} if (evaluating := self.eval_clock.now()) else {}),
            **self._speed.metrics(self._last_learnt or self._now(updates)),
        }

    def speed_while_learning(self, updates: int) -> dict[str, float]:
        """``perf/*`` metrics between the first and the last round of updates of this segment.

        With fewer than two rounds they are since the first step of the segment.
        """
        first, last = self._first_learnt, self._last_learnt or self._now(updates)
        since = self._segment_start if first is None or first == last else first
        return rates(since, last, self._frame_skip)

    def _now(self, updates: int) -> Moment:
        """The present moment, before the first updates of a segment."""
        return Moment(self.clock.now(), self.agent_steps, updates, samples=0)

    def state_dict(self) -> dict[str, Any]:
        return {
            "agent_steps": self.agent_steps,
            "epsilon": self._epsilon,
            "seconds": self.clock.now(),
            "eval_seconds": self.eval_clock.now(),
            "timer": dict(self.timer.seconds),
            "returns": self.returns.state_dict(),
            "loss": self._loss.value,
            "resumed_at": self.resumed_at,
            "time_to_solve_avg": self.time_to_solve_avg_s,
            "reward_bound": self._reward_bound,
            "lost_s": self.lost_s,
            "benchmark": self.benchmark,
            "begun_again": self.begun_again,
            "busy": self.busy,
            "time_is_lower_bound": self.time_is_lower_bound,
            "lost_actors": self.lost_actors,
        }

    def load_state_dict(self, state: Mapping[str, Any], updates: int) -> None:
        self.agent_steps, self._epsilon, self._loss.value = state["agent_steps"], state["epsilon"], state["loss"]
        self.clock.set(state["seconds"])
        self.eval_clock.set(state["eval_seconds"])
        self.timer.seconds.update(state["timer"])
        self.returns.load_state_dict(state["returns"])
        self.resumed_at = [*state["resumed_at"], self.agent_steps]
        if state["reward_bound"] == self._reward_bound:
            self.time_to_solve_avg_s = state["time_to_solve_avg"]
        self.lost_s, self.time_is_lower_bound = state["lost_s"], state["time_is_lower_bound"]
        self.lost_actors = state["lost_actors"]
        self.benchmark &= state["benchmark"]
        self.busy = self.busy or state["busy"]
        self._next_report = time.monotonic() + self._every
        self._begin_segment(updates)

    def count_lost(self, logged: float | None, evaluated: float, updates: int) -> bool:
        """Count the time lost after the checkpoint that a run resumes from.

        Args:
            logged: seconds of training at the last report, ``None`` if unknown.
            evaluated: seconds of evaluations at the last report.

        Returns:
            Whether any time was lost.
        """
        self.time_is_lower_bound |= logged is None
        lost_evaluating = evaluated - self.eval_clock.now()
        if lost_evaluating > ROUNDING_S:
            self.eval_clock.set(evaluated)
        lost = 0.0 if logged is None else logged - self.clock.now()
        if lost <= ROUNDING_S:
            return lost_evaluating > ROUNDING_S
        self.lost_s += lost
        self.clock.set(self.clock.now() + lost)
        self._begin_segment(updates)
        return True

    def _begin_segment(self, updates: int) -> None:
        self._segment_start = self._now(updates)
        self._speed = Speed(self._frame_skip, self._segment_start)
