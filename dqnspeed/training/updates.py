"""Execution of updates: one operation after another, or as a CUDA graph."""

from __future__ import annotations

import contextlib
import functools
from typing import Protocol, cast

from dqnspeed.algorithms import Learner
from dqnspeed.algorithms.learner import GradientLearner
from dqnspeed.buffers import Buffer
from dqnspeed.buffers.base import DeviceBuffer
from dqnspeed.config.schema import RunConfig
from dqnspeed.execution.graph import Capture, CaptureError, Capturing, Launch, Pace, prepared, refusals_of
from dqnspeed.tracking.metrics import Timer

PREPARED = 3  # eager updates before the first capture, which choose kernels and make the optimizer's state


class Updates(Protocol):
    """The interface that the training loop uses."""

    how: str  # kind of execution, for the summary
    samples: int  # transitions trained on so far

    def do(self, count: int) -> None:
        """Do the next ``count`` updates."""


class PlainUpdates:
    """One operation after another."""

    def __init__(self, learner: Learner, buffer: Buffer, batch_size: int, timer: Timer, how: str):
        self._learner, self._buffer, self._batch_size, self._timer = learner, buffer, batch_size, timer
        self._timed = learner.timed if isinstance(learner, GradientLearner) else contextlib.nullcontext
        self.how, self.samples = how, 0

    def do(self, count: int) -> None:
        for _ in range(count):
            before = self._learner.updates
            with self._timer("sampling"), self._timed():
                batch = self._buffer.sample(self._batch_size)
            with self._timer("updating"):
                self._learner.update(batch)
            if self._learner.updates > before:  # a learner may skip a batch
                self.samples += self._buffer.samples_in_batch(self._batch_size)


class GraphedUpdates:
    """Updates as CUDA graphs: drawing a batch, the update, and the target network's copy where it is due.

    Args:
        capture_graph: captures a graph; ``compiled``: whether torch.compile has joined operations.
        in_rounds: launch all updates that are due before this process waits, so that environments can step meanwhile.
            Otherwise at most two launches are pending, since actors in other processes count launched updates as done.
    """

    def __init__(
        self,
        learner: GradientLearner,
        buffer: DeviceBuffer,
        batch_size: int,
        timer: Timer,
        capture_graph: Capture | None = None,
        compiled: bool = False,
        in_rounds: bool = False,
    ):
        self._learner, self._buffer, self._batch_size, self._timer = learner, buffer, batch_size, timer
        self._capture = capture_graph or Capturing()
        self._graphs = dict[bool, Launch]()
        self._prepared, self._pace, self._in_rounds = 0, Pace(learner.device), in_rounds
        self.how, self.samples = "graph" + ", compiled" * compiled, 0

    def do(self, count: int) -> None:
        for _ in range(count):
            with self._timer("sampling"):
                self._buffer.prepare(self._batch_size)
            with self._timer("updating"):
                self._launch(self._learner.settles(self._learner.updates + 1))
            self._learner.count()
            self._buffer.drawn()
            self.samples += self._buffer.samples_in_batch(self._batch_size)
        if self._in_rounds and count:
            self._pace.launched()

    def _launch(self, settles: bool) -> None:
        """Launch the next update, after which the learner ``settles``.

        Raises:
            CaptureError: it cannot be captured.
        """
        with refusals_of("the update"):
            if self._prepared < PREPARED:
                self._prepared += 1
                work = functools.partial(self._work, settles)
                prepared(work, self._learner.device, last=self._prepared == PREPARED)
                return
            kinds = {settles}
            if not self._graphs:  # all at once: a capture waits for the device
                kinds |= {False, type(self._learner).settle is not GradientLearner.settle}
            for kind in kinds - self._graphs.keys():
                self._graphs[kind] = self._capture(functools.partial(self._work, kind), self._learner.device)
        with self._learner.timed():
            self._graphs[settles]()
        if not self._in_rounds:
            self._pace.launched()

    def _work(self, settles: bool) -> None:
        self._learner.step(self._buffer.draw_batch(self._batch_size))
        if settles:
            self._learner.settle()


def make_updates(run: RunConfig, learner: Learner, buffer: Buffer, timer: Timer) -> Updates:
    """The updates that ``execution`` asks for.

    Raises:
        CaptureError: a plugin's learner or memory is not made for the graph that is asked for.
    """
    execution = run.execution
    if execution.graph:
        if type(learner).update is not GradientLearner.update:
            raise CaptureError("the update", f"{type(learner).__name__} has an update() of its own")
        if not hasattr(buffer, "draw_batch"):
            raise CaptureError("the update", f"{type(buffer).__name__} has no draw_batch()")
        return GraphedUpdates(
            cast("GradientLearner", learner), cast("DeviceBuffer", buffer), run.algo.batch_size, timer,
            compiled=execution.compile, in_rounds=not run.parallelism.processes,
        )  # fmt: skip
    compiled = execution.compile and isinstance(learner, GradientLearner)  # a table has no operations to compile
    return PlainUpdates(learner, buffer, run.algo.batch_size, timer, "compiled" if compiled else "eager")


__all__ = ["GraphedUpdates", "PlainUpdates", "Updates", "make_updates"]
