"""How updates are done that are due: one after another, or as a graph that is launched as a whole."""

from __future__ import annotations

import contextlib
import functools
import itertools
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
        batches = self._memory.batches(self._batch_size, count)
        for _ in range(count):
            with self._timer("sampling"), self._timed():
                batch = next(batches)
            with self._timer("updating"):
                self._learner.update(batch)


class GraphedUpdates:
    """Drawing a batch, the update and what settles after it, captured once for each number of updates at a time, with
    and without what settles.

    Args:
        together: updates in one launch, where as many are due.
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
        together: int,
        capture_graph: Capture | None = None,
        compiled: bool = False,
        in_rounds: bool = False,
    ):
        self._learner, self._memory, self._batch_size, self._timer = learner, memory, batch_size, timer
        self._together, self._capture = together, capture_graph or Capturing()
        self._graphs = dict[tuple[int, bool], Launch]()
        self._prepared, self._pace, self._in_rounds = 0, Pace(learner.device), in_rounds
        self._plain: PlainUpdates | None = None  # if capture was refused
        self._captured = ("graph" if together == 1 else f"graph of {together} updates") + (", compiled" * compiled)
        self.how = "eager: no graph (nothing was captured yet)"

    def do(self, count: int) -> None:
        begun = count > 0
        while count and self._plain is None:
            with self._timer("sampling"):
                ready = self._memory.prepare(self._batch_size)
            updates, settles = self._next(min(count, ready))
            with self._timer("updating"):
                if not self._launch(updates, settles):
                    break
            self._learner.count(updates)
            self._memory.drawn(updates)
            count -= updates
        if self._plain is not None:
            self._plain.do(count)
        elif self._in_rounds and begun:
            self._pace.launched()

    def _next(self, ready: int) -> tuple[int, bool]:
        """How many updates the next launch does, and whether the learner settles after the last of them."""
        updates = self._together if ready >= self._together and self._prepared >= PREPARED else 1
        done = self._learner.updates
        if any(self._learner.settles(done + i) for i in range(1, updates)):
            updates = 1
        return updates, self._learner.settles(done + updates)

    def _launch(self, updates: int, settles: bool) -> bool:
        """Whether the updates were launched; if not, they cannot be."""
        work, device = functools.partial(self._work, updates, settles), self._learner.device
        try:
            if self._prepared < PREPARED:
                self._prepared += 1
                prepared(work, device, last=self._prepared == PREPARED)
                return True
            kinds = {(updates, settles)}
            if not self._graphs:  # all at once: a capture waits for the device
                settling = type(self._learner).settle is not GradientLearner.settle
                kinds |= set(itertools.product({1, self._together}, {False, settling}))
            for kind in kinds - self._graphs.keys():
                self._graphs[kind] = self._capture(functools.partial(self._work, *kind), device)
            self.how = self._captured
        except RuntimeError as error:
            self._learner.recount()
            self._memory.recount()
            self._graphs.clear()
            self._plain = _plainly(self._learner, self._memory, self._batch_size, self._timer, reason_of(error))
            self.how = self._plain.how
            return False
        with self._learner.timed():
            self._graphs[updates, settles]()
        if not self._in_rounds:
            self._pace.launched()
        return True

    def _work(self, updates: int, settles: bool) -> None:
        for _ in range(updates):
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
            execution.updates_per_graph, compiled=execution.compile, in_rounds=not run.parallelism.processes,
        )  # fmt: skip
    compiled = execution.compile and isinstance(learner, GradientLearner)  # a table has no operations to compile
    return PlainUpdates(learner, memory, run.algo.batch_size, timer, "compiled" if compiled else "eager")


def _plainly(learner: Learner, memory: Memory, batch_size: int, timer: Timer, reason: str) -> PlainUpdates:
    log.warning(
        "execution.graph=true: the update cannot be captured (%s); its operations are launched one by one.", reason
    )
    return PlainUpdates(learner, memory, batch_size, timer, f"eager: no graph ({reason})")


__all__ = ["GraphedUpdates", "PlainUpdates", "Updates", "make_updates"]
