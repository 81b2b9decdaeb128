"""How updates are done that are due: one after another, or as a graph that is launched as a whole."""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import Protocol, cast

from dqnspeed.algorithms import Learner
from dqnspeed.algorithms.gradient import GradientLearner
from dqnspeed.config.schema import RunConfig
from dqnspeed.execution.graph import Capture, Capturing, Launch, Pace, prepared, reason_of
from dqnspeed.memory import Memory
from dqnspeed.memory.base import DeviceMemory
from dqnspeed.tracking.metrics import Timer

log = logging.getLogger(__name__)

PREPARED = 3  # updates that are done before the first capture: they choose kernels and make the optimizer's state


class Updates(Protocol):
    """The interface that the training loop uses."""

    how: str  # they are executed, for the summary

    def do(self, count: int) -> None:
        """Do the next ``count`` updates."""


class PlainUpdates:
    """One operation after another."""

    def __init__(self, learner: Learner, memory: Memory, batch_size: int, timer: Timer, how: str):
        self._learner, self._memory, self._batch_size, self._timer = learner, memory, batch_size, timer
        self._timed = learner.timed if isinstance(learner, GradientLearner) else contextlib.nullcontext
        self.how = how

    def do(self, count: int) -> None:
        for _ in range(count):
            with self._timer("sampling"), self._timed():
                batch = self._memory.sample(self._batch_size)
            with self._timer("updating"):
                self._learner.update(batch)


class GraphedUpdates:
    """Drawing a batch, the update and what settles after it, captured once with and once without what settles.

    Args:
        capture_graph: makes the graph; ``compiled``: of what the compiler has joined.
        in_rounds: all updates that are due are launched before this process waits, so that it can send off the games
            that step beside them; else no more than two launches, as actors in other processes take those that are
            counted for done.
    """

    def __init__(
        self,
        learner: GradientLearner,
        memory: DeviceMemory,
        batch_size: int,
        timer: Timer,
        capture_graph: Capture | None = None,
        compiled: bool = False,
        in_rounds: bool = False,
    ):
        self._learner, self._memory, self._batch_size, self._timer = learner, memory, batch_size, timer
        self._capture = capture_graph or Capturing()
        self._graphs = dict[bool, Launch]()
        self._prepared, self._pace, self._in_rounds = 0, Pace(learner.device), in_rounds
        self._plain: PlainUpdates | None = None  # if capture was refused
        self._captured = "graph" + ", compiled" * compiled
        self.how = "eager: no graph (nothing was captured yet)"

    def do(self, count: int) -> None:
        begun = count > 0
        while count and self._plain is None:
            with self._timer("sampling"):
                self._memory.prepare(self._batch_size)
            with self._timer("updating"):
                if not self._launch(self._learner.settles(self._learner.updates + 1)):
                    break
            self._learner.count()
            self._memory.drawn()
            count -= 1
        if self._plain is not None:
            self._plain.do(count)
        elif self._in_rounds and begun:
            self._pace.launched()

    def _launch(self, settles: bool) -> bool:
        """Whether the next update was launched; if not, it cannot be. The learner ``settles`` after it."""
        work, device = functools.partial(self._work, settles), self._learner.device
        try:
            if self._prepared < PREPARED:
                self._prepared += 1
                prepared(work, device, last=self._prepared == PREPARED)
                return True
            kinds = {settles}
            if not self._graphs:  # all at once: a capture waits for the device
                kinds |= {False, type(self._learner).settle is not GradientLearner.settle}
            for kind in kinds - self._graphs.keys():
                self._graphs[kind] = self._capture(functools.partial(self._work, kind), device)
            self.how = self._captured
        except RuntimeError as error:
            self._learner.recount()
            self._memory.recount()
            self._graphs.clear()
            self._plain = _plainly(self._learner, self._memory, self._batch_size, self._timer, reason_of(error))
            self.how = self._plain.how
            return False
        with self._learner.timed():
            self._graphs[settles]()
        if not self._in_rounds:
            self._pace.launched()
        return True

    def _work(self, settles: bool) -> None:
        self._learner.step(self._memory.draw_batch(self._batch_size))
        if settles:
            self._learner.settle()


def make_updates(run: RunConfig, learner: Learner, memory: Memory, timer: Timer) -> Updates:
    """The updates that ``execution`` asks for."""
    execution = run.execution
    if execution.graph:
        own = None
        if type(learner).update is not GradientLearner.update:
            own = f"{type(learner).__name__} has an update() of its own"
        elif not hasattr(memory, "draw_batch"):
            own = f"{type(memory).__name__} has no draw_batch()"
        if own:
            return _plainly(learner, memory, run.algo.batch_size, timer, own)
        return GraphedUpdates(
            cast("GradientLearner", learner), cast("DeviceMemory", memory), run.algo.batch_size, timer,
            compiled=execution.compile, in_rounds=not run.parallelism.processes,
        )  # fmt: skip
    compiled = execution.compile and isinstance(learner, GradientLearner)  # a table has no operations to compile
    return PlainUpdates(learner, memory, run.algo.batch_size, timer, "compiled" if compiled else "eager")


def _plainly(learner: Learner, memory: Memory, batch_size: int, timer: Timer, reason: str) -> PlainUpdates:
    log.warning(
        "execution.graph=true: the update cannot be captured (%s); its operations are launched one by one.", reason
    )
    return PlainUpdates(learner, memory, batch_size, timer, f"eager: no graph ({reason})")


__all__ = ["GraphedUpdates", "PlainUpdates", "Updates", "make_updates"]
