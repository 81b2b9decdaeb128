"""Measures the pieces of a plan, one after another, and keeps the result on the disk."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from dqnspeed.bench import result as results
from dqnspeed.bench.counting import END
from dqnspeed.bench.measured_process import Speeds, Subject, SubjectError, running
from dqnspeed.bench.pairs import Pace, interval, take_turns
from dqnspeed.bench.plan import Bound, Piece
from dqnspeed.bench.progress import Bar
from dqnspeed.bench.result import Floor, Measurement, Pair, Result
from dqnspeed.bench.workloads import PARTS
from dqnspeed.cli.errors import RunError
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import KINDS
from dqnspeed.system.noise import Watch

FLOORS = "floors"
OF_REFERENCE = "its reference, "  # what the error of a row begins with that failed by its reference


class Measuring:
    """Measures pieces, and adds each to ``result``, which is written after each; looks at the machine before and after.

    What has no reference waits when it was measured, since it may be that of the pieces after it.
    """

    def __init__(self, result: Result, path: Path, bar: Bar):
        self.result, self.bar = result, bar
        self._path = path
        self._reference: tuple[Piece, Subject] | None = None
        self._ending = list[Subject]()  # they end while others start

    def __enter__(self) -> Measuring:
        self.change()  # is there room for it?
        self.bar.begin("looking at the machine")
        self._watch = Watch()
        self.change(disturbances=self._watch.before())
        for sentence in self.result.disturbances:
            self.bar.say(sentence)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.end_reference()
        if kind not in (None, KeyboardInterrupt):
            return
        found = list(dict.fromkeys([*self.result.disturbances, *self._watch.after()]))
        self.change(disturbances=found, ended=results.now() if kind is None else None)

    def change(self, **changes: Any) -> None:
        """Change the result, and write it; raises :class:`RunError` if that fails."""
        self.result = dataclasses.replace(self.result, **changes)
        try:
            results.write(self.result, self._path)
        except OSError as error:
            sentence = f"{self._path}: cannot be written ({error.strerror}); what was written before is whole."
            raise RunError(sentence) from error

    def add(self, measurement: Measurement) -> None:
        """Add a row."""
        self.change(measurements=[*self.result.measurements, measurement])

    def measure(self, piece: Piece, pace: Pace, reference: Piece | None = None) -> Measurement:
        """The row of ``piece``; one that fails is a row that says why."""
        self.bar.begin(f"{piece.group}: {piece.name}")
        found = self._measured(piece, pace, reference)
        self.add(found)
        self.bar.remaining.advance(pace.seconds(reference is not None))
        return found

    def end_reference(self) -> None:
        """Let go of the reference that waits; no measured process is left then."""
        if self._reference is not None:
            self._end(self._reference[1])
            self._reference = None
        self._see_ended()

    def _end(self, subject: Subject) -> None:
        subject.tell(END)
        self._ending.append(subject)

    def _see_ended(self) -> None:
        """Wait until all have ended that were told to."""
        while self._ending:
            self._ending.pop().end()

    def _measured(self, piece: Piece, pace: Pace, reference: Piece | None) -> Measurement:
        row = Measurement(piece.group, piece.name, piece.unit)

        def judged(before: Speeds | None, value: Speeds) -> float:
            counts = value.get(piece.counted), before.get(piece.counted) if before else 1.0
            if counts[0] is None or not counts[1]:
                raise SubjectError(candidate[0], f"counted no {piece.counted} in a slice of {pace.slice_s:g} s")
            return counts[0] / counts[1]

        try:
            made = piece.make()
            row = dataclasses.replace(row, kind=severest(made.kinds), overrides=list(made.overrides))
            before = [self._started(reference)] if reference else []
            with contextlib.ExitStack() as resources:
                if reference is None and piece.copies == 1:
                    candidate = [self._started(piece)]  # which may be the reference of what comes next
                else:
                    candidate = resources.enter_context(running(*[made.program] * piece.copies, end=self._end))
                self._see_ended()
                turns = list(take_turns(before, candidate, pace, judged))
        except (ConfigError, SubjectError, OSError) as error:  # OSError: no process or no file for what it says
            return dataclasses.replace(row, error=self._reason(error, piece))
        medians = median_speeds([value for _, value in turns])
        pairs: list[Pair] = [[one[piece.counted] if one else None, value[piece.counted]] for one, value in turns]
        floor = self._floor(made.bound, medians, piece.counted)
        parts = {part: medians[part] for part in PARTS if part in medians}
        return with_pairs(dataclasses.replace(row, floor=floor, parts=parts), pairs)

    def _started(self, piece: Piece) -> Subject:
        if self._reference is None or self._reference[0] != piece:
            self.end_reference()
            subject = Subject(piece.make().program)
            self._reference = (piece, subject)
            subject.await_ready()
        return self._reference[1]

    def _reason(self, error: Exception, piece: Piece) -> str:
        sentence = f"{str(error).rstrip('.')}."
        if self._reference and isinstance(error, SubjectError) and error.subject is self._reference[1]:
            reference = self._reference[0]
            self.end_reference()
            return sentence if reference == piece else f"{OF_REFERENCE}{reference.name}: {sentence}"
        return sentence

    def _floor(self, bound: Bound | None, speeds: Speeds, counted: str) -> Floor | None:
        """The share of the best slice of a floor; above 1 if that was disturbed."""
        floor = bound and self.result.find(FLOORS, bound.name)
        best = max((value for _, value in floor.pairs if value), default=0.0) if floor else 0.0
        if not bound or not best or not speeds.get(bound.counted):
            return None
        share = speeds[bound.counted] * bound.each / best
        return Floor(f"the {bound.name}", share)


def with_pairs(row: Measurement, pairs: Sequence[Pair], error: str | None = None) -> Measurement:
    """``row`` with its pairs and what follows from them; with an ``error`` it has no figures."""
    found = [(before, value) for before, value in pairs if value is not None]
    references = [before for before, _ in found if before is not None]
    if error is not None or not found:
        return dataclasses.replace(row, pairs=list(pairs), error=error)
    return dataclasses.replace(
        row,
        pairs=list(pairs),
        value=statistics.median(value for _, value in found),
        reference=statistics.median(references) if references else None,
        ratio=interval([value / before for before, value in found if before]) if references else None,
    )


def severest(kinds: Iterable[str]) -> str:
    return max(kinds, key=KINDS.index, default=KINDS[0])


def median_speeds(found: Sequence[Speeds]) -> Speeds:
    return {name: statistics.median(one[name] for one in found) for name in found[0]}
