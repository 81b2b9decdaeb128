"""A running bench: measures pieces one after another, shows its progress, and keeps the result on disk."""

from __future__ import annotations

import dataclasses
import shlex
import signal
import statistics
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from dqnspeed.bench.measured_process import MeasuredProcess, ProcessError, running
from dqnspeed.bench.pairs import SamplingPlan, interval, take_turns
from dqnspeed.bench.plan import Piece, Plan
from dqnspeed.bench.result import FILE, Measurement, Pair, Result
from dqnspeed.bench.workloads import PARTS
from dqnspeed.cli.errors import RunError
from dqnspeed.config.options import ConfigError
from dqnspeed.system import atomic, machine
from dqnspeed.system.noise import disturbances

REFERENCE_FAILED = "its reference failed: "  # start of a row's error


class BenchProgress:
    """Prints a line for each piece, with the share of the work that is done.

    Args:
        seconds: estimated duration of the bench.
    """

    def __init__(self, seconds: float):
        self._seconds, self._done = seconds, 0.0

    def start(self, piece: str) -> None:
        """Print the next piece."""
        self.print(f"{self._done / self._seconds:4.0%}: {piece}")

    def advance(self, seconds: float) -> None:
        """Count work that was estimated to take ``seconds``."""
        self._done += seconds

    def print(self, sentence: str) -> None:
        print(sentence, file=sys.stderr, flush=True)


class BenchSession:
    """Measures pieces and writes ``result`` after each; inspects the machine before and after.

    The process of the latest piece without a reference stays paused, since it may be the reference of the next pieces.

    Args:
        suite: name of the suite; ``seconds``: its estimated duration.

    Attributes:
        received: the signal that ends the bench.
    """

    received: signal.Signals | None = None

    def __init__(self, plan: Plan, suite: str, folder: Path, seconds: float):
        self.progress = BenchProgress(seconds)
        self._path = folder / FILE
        self._reference: tuple[Piece, MeasuredProcess] | None = None
        self.result = Result(
            command=shlex.join(["python", "-m", "dqnspeed.bench", *sys.argv[1:]]), started=_now(), suite=suite,
            env=plan.reference.env.id, overrides=plan.overrides, commit=machine.git_commit(),
            machine=machine.describe(plan.device), versions=machine.versions(),
        )  # fmt: skip

    def __enter__(self) -> BenchSession:
        self.update()  # fails early if the file cannot be written
        self.progress.start("inspecting the machine")
        self.update(disturbances=disturbances())
        for sentence in self.result.disturbances:
            self.progress.print(sentence)
        return self

    def end(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: end the bench now, or before the next piece if Python drops the exception in ``__del__``."""
        self.received = signal.Signals(number)
        raise KeyboardInterrupt

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.end_reference()
        if kind in (None, KeyboardInterrupt):
            found = dict.fromkeys([*self.result.disturbances, *disturbances()])
            self.update(disturbances=list(found), ended=_now() if kind is None else None)

    def update(self, **changes: Any) -> None:
        """Change the result and write it; raises :class:`RunError` if that fails."""
        self.result = dataclasses.replace(self.result, **changes)
        try:
            atomic.write_json(self._path, dataclasses.asdict(self.result))
        except OSError as error:
            sentence = f"{self._path}: cannot be written ({error.strerror}). The rows before this one are kept."
            raise RunError(sentence) from error

    def add(self, row: Measurement) -> None:
        self.update(measurements=[*self.result.measurements, row])

    def measure(self, piece: Piece, sampling: SamplingPlan) -> Measurement:
        """The row of ``piece``, with its error if it cannot be measured."""
        if self.received is not None:
            raise KeyboardInterrupt
        self.progress.start(f"{piece.group}: {piece.name}")
        row = self._measured(piece, sampling)
        self.add(row)
        self.progress.advance(sampling.seconds(piece.reference is not None))
        return row

    def end_reference(self) -> None:
        """End the process that waits as a reference."""
        if self._reference is not None:
            self._reference[1].end()
            self._reference = None

    def _measured(self, piece: Piece, sampling: SamplingPlan) -> Measurement:
        row = Measurement(piece.group, piece.name, f"{piece.counted}/s")
        try:
            workload = piece.compose()
            row = dataclasses.replace(row, kind=workload.kind, overrides=list(workload.overrides))
            if piece.reference is None and piece.copies == 1:
                turns = take_turns([], [self._reference_process(piece)], sampling)
            else:
                references = [self._reference_process(piece.reference)] if piece.reference else []
                with running([workload.program] * piece.copies) as processes:
                    turns = take_turns(references, processes, sampling)
        except (ConfigError, OSError) as error:  # OSError: too many processes or open files
            return dataclasses.replace(row, error=f"{str(error).rstrip('.')}.")
        except ProcessError as error:
            reference_failed = self._reference is not None and error.process is self._reference[1]
            self.end_reference()
            prefix = REFERENCE_FAILED if reference_failed and piece.reference else ""
            return dataclasses.replace(row, error=f"{prefix}{error}.")
        counted = piece.counted
        pairs: list[Pair] = [[before.get(counted), value.get(counted)] for before, value in turns]
        medians = {name: statistics.median(value[name] for _, value in turns) for name in turns[0][1]}
        if not medians.get(counted):
            return dataclasses.replace(row, error=f"counted no {counted} in a slice of {sampling.slice_s:g} s.")
        parts = {part: medians[part] for part in PARTS if part in medians}
        return with_pairs(dataclasses.replace(row, parts=parts), pairs)

    def _reference_process(self, piece: Piece) -> MeasuredProcess:
        if self._reference is None or self._reference[0] is not piece:
            self.end_reference()
            process = MeasuredProcess(piece.compose().program)
            self._reference = (piece, process)
            process.await_ready()
        return self._reference[1]


def with_pairs(row: Measurement, pairs: Sequence[Pair]) -> Measurement:
    """``row`` with ``pairs`` and the figures computed from them."""
    references = [before for before, _ in pairs if before is not None]
    return dataclasses.replace(
        row,
        pairs=list(pairs),
        value=statistics.median(value for _, value in pairs if value is not None),
        reference=statistics.median(references) if references else None,
        ratio=interval([value / before for before, value in pairs if before and value is not None]),
    )


def _now() -> str:
    return datetime.now().isoformat(timespec="seconds")
