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
        self.benchmark = benchmark  # whether it had the machine for itself, so that its times can be compared
        self.begun_again = begun_again  # from its first step, since it was killed before its first checkpoint
        self.clock, self.timer = Clock(), Timer(("sampling", "updating"))
        self.eval_clock = Clock()  # runs during evaluations, while ``clock`` stands still
        # How updates really ran, how actions were chosen, and where experience was held.
        self.execution, self.acting, self.replay_device = "", "", ""
        self.returns = Returns(run.stop.window)
        self.startup = dict[str, float]()  # seconds before the first step, by part
        self.busy: str | None = None  # why other load on this machine slows the run down
        self.agent_steps = 0
        self.lost_actors = 0  # that were replaced
        self.time_to_solve_s: float | None = None
        self.time_to_solve_avg_s: float | None = None
        self._reward_bound = run.stop.reward_bound
        self._bound = math.inf if run.stop.reward_bound is None else run.stop.reward_bound
        self.resumed_at: list[int] = []  # agent steps
        self.lost_s, self.time_is_lower_bound = (
            0.0,
            False,
        )  # of training that was lost by kills, as far as known
        # The ends of the first and of the newest updates of this segment of the run. Between two such moments lie the
        # steps that their updates are due for, so that ratios and speeds are of one interval.
        self._first_learnt: Moment | None = None
        self._last_learnt: Moment | None = None
        self._epsilon = 1.0
        self._loss = Ema()
        self._every, self._next_report = run.tracking.report_every_s, 0.0
        self._frame_skip = run.wrappers.frame_skip
        self._speed = Speed(self._frame_skip)
        self._segment_start = START

    def start(self) -> None:
        """The first environment step begins."""
        startup.switch("actors")
        self.startup = dict(startup.seconds)
        self.clock.start()

    def add(self, collected: Collected) -> None:
        self.agent_steps += collected.agent_steps
        for how in collected.lost:
            log.warning("%s\nIt is replaced, and the run goes on.", how)
        self.lost_actors += len(collected.lost)
        self._epsilon = collected.epsilon

    def new_episodes(self, collected: Collected) -> Iterator[tuple[int, Episode]]:
        """Number the games that ended, from 1, and count the games whose turn it is.

        ``time_to_solve_avg_s`` is when the exponential mean first reached the bound: the stop rule of the book's
        programs (PTAN). It starts at the first game, so one good game may be enough; here it does not end the run.
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
        """An evaluation is played inside."""
        with self.clock.stopped(), self.eval_clock.running():
            yield

    def learnt(self, updates: int, samples: int) -> None:
        """All updates that were due have been done; ``samples``: used by them since the start or the resume."""
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
        """By wall clock, also while the training clock stands still for evaluations."""
        return time.monotonic() >= self._next_report

    def metrics(self, stats: Mapping[str, float], updates: int) -> dict[str, float]:
        """The metrics of a report; those without a value are NaN."""
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
        """``perf/*`` between this segment's first updates and its last; since its first step if it had none or no
        more."""
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
            logged: seconds of training at the last report, ``None`` if unknown; ``evaluated``: in evaluations.

        Returns:
            Whether there was any.
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
