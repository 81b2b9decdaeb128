"""Execution of updates: one operation after another, or as a CUDA graph."""

from __future__ import annotations

import contextlib
from typing import Any

from dqnspeed.algorithms import Learner
from dqnspeed.algorithms.learner import GradientLearner
from dqnspeed.buffers import Buffer
from dqnspeed.config.schema import RunConfig
from dqnspeed.execution.graph import Capture, CaptureError, Capturing, Launch, LaunchThrottle, prepared, refusals_of
from dqnspeed.tracking.metrics import Timer

PREPARED = 3  # eager updates before the first capture, which choose kernels and make the optimizer's state


class EagerUpdater:
    """One operation after another.

    Attributes:
        how: kind of execution, for the summary.
        samples: transitions trained on so far.
    """

    def __init__(self, learner: Learner, buffer: Buffer, batch_size: int, timer: Timer, how: str):
        self._learner, self._buffer, self._batch_size, self._timer = learner, buffer, batch_size, timer
        self._timed = learner.timed if isinstance(learner, GradientLearner) else contextlib.nullcontext
        self.how, self.samples = how, 0

    def run(self, count: int) -> None:
        """Do the next ``count`` updates."""
        for _ in range(count):
            before = self._learner.updates
            with self._timer("sampling"), self._timed():
                batch = self._buffer.sample(self._batch_size)
            with self._timer("updating"), self._timed():
                self._learner.update(batch)
            if self._learner.updates > before:  # a learner may skip a batch
                self.samples += self._buffer.samples_in_batch(self._batch_size)


class GraphUpdater:
    """Drawing a batch and the update, captured once with and once without a copy into the target network.

    Args:
        capture_graph: captures a graph; ``compiled``: whether torch.compile has joined operations.
        in_rounds: launch all updates that are due before this process waits, so that environments can step meanwhile.
            Otherwise at most two launches are pending, since actors in other processes count launched updates as done.
    """

    def __init__(
        self,
        learner: GradientLearner,
        buffer: Any,
        batch_size: int,
        timer: Timer,
        capture_graph: Capture | None = None,
        compiled: bool = False,
        in_rounds: bool = False,
    ):
        self._learner, self._buffer, self._batch_size, self._timer = learner, buffer, batch_size, timer
        self._capture = capture_graph or Capturing()
        self._graphs = dict[bool, Launch]()
        self._prepared, self._throttle, self._in_rounds = 0, LaunchThrottle(learner.device), in_rounds
        self.how, self.samples = "graph" + ", compiled" * compiled, 0

    def run(self, count: int) -> None:
        """Launch the next ``count`` updates."""
        for _ in range(count):
            with self._timer("sampling"):
                self._buffer.prepare(self._batch_size)
            updates = self._learner.updates + 1
            with self._timer("updating"):
                self._launch(self._learner.should_sync_target(updates))
            self._learner.sync_update_count(updates)  # a graph counts on the device alone
            self._buffer.drawn()
            self.samples += self._buffer.samples_in_batch(self._batch_size)
        if self._in_rounds and count:
            self._throttle.launched()

    def _launch(self, syncs_target: bool) -> None:
        """Launch the next update, which ends with a copy into the target network or not.

        Raises:
            CaptureError: it cannot be captured.
        """
        with refusals_of("the update"):
            if self._prepared < PREPARED:
                self._prepared += 1
                prepared(self._work, self._learner.device, last=self._prepared == PREPARED)
                return
            if syncs_target not in self._graphs:
                self._graphs[syncs_target] = self._capture(self._work, self._learner.device)
        with self._learner.timed():
            self._graphs[syncs_target]()
        if not self._in_rounds:
            self._throttle.launched()

    def _work(self) -> None:
        self._learner.update(self._buffer.draw_batch(self._batch_size))


Updater = EagerUpdater | GraphUpdater


def make_updater(run: RunConfig, learner: Learner, buffer: Buffer, timer: Timer) -> Updater:
    """The updates that ``execution`` asks for.

    Raises:
        CaptureError: a plugin's learner or buffer is not made for the graph that is asked for.
    """
    execution = run.execution
    if execution.graph:
        if not isinstance(learner, GradientLearner):
            raise CaptureError("the update", f"{type(learner).__name__} is no GradientLearner")
        if not hasattr(buffer, "draw_batch"):
            raise CaptureError("the update", f"{type(buffer).__name__} has no draw_batch()")
        return GraphUpdater(
            learner, buffer, run.algo.batch_size, timer,
            compiled=bool(execution.compile), in_rounds=not run.parallelism.processes,
        )  # fmt: skip
    compiled = execution.compile and isinstance(learner, GradientLearner)  # a table has no operations to compile
    return EagerUpdater(learner, buffer, run.algo.batch_size, timer, "compiled" if compiled else "eager")
