"""The suites: what is measured in which order, how long, and what is said of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from dqnspeed.bench.measuring import Measuring, severest, with_pairs
from dqnspeed.bench.pairs import Pace
from dqnspeed.bench.plan import BASELINE, Piece, Plan
from dqnspeed.bench.recommend import (
    TOGETHER,
    TrainingError,
    checked,
    chosen,
    more_if_allowed,
    nothing,
    recommendation,
    train,
    tried,
)
from dqnspeed.bench.result import Measurement, Pair, Recommendation
from dqnspeed.system.noise import LOOK_S

SUITES = ("quick", "full", "micro")
PIECES = Pace(settle_s=0.1, slice_s=0.3, min_pairs=5, max_pairs=5)
RUNGS = Pace(settle_s=0.25, slice_s=0.8, min_pairs=5, max_pairs=5, start_s=7.0)
FRESH = Pace(settle_s=0.3, slice_s=1.0, min_pairs=6, max_pairs=8, start_s=7.0)  # of the line that was chosen
CHECKS, CHECK_S = 5, 6.0  # pairs of whole trainings, and the seconds that each trains
TRIES = 2  # lines that are measured once more, of which the first that pays is recommended
CHECK_START_S, CHECK_LIMIT_S = 5.0, 120.0  # what a whole training takes besides, and may take at most
NAMES = {
    "sampling": "drawing batches", "updating": "the learner's updates", "acting": "choosing actions",
    "stepping": "stepping the games",
}  # fmt: skip


class Suite:
    """A suite with the overrides of all that it measures.

    Raises:
        ConfigError: the reference cannot be trained here.
    """

    def __init__(self, name: str, overrides: Sequence[str]):
        self.name, self.plan = name, Plan(overrides, full=name == "full")

    def seconds(self) -> float:
        """How long it takes about."""
        pieces = [reference is not None for _, reference in self.plan.pieces()] + [False for _ in self.plan.floors()]
        parts = 2 * LOOK_S + sum(map(PIECES.seconds, pieces))
        if self.name == "micro":
            return parts
        rungs = 1 + sum(map(len, self.plan.axes().values())) + TOGETHER
        check = FRESH.seconds(paired=True) + 2 * CHECKS * (CHECK_S + CHECK_START_S)
        return parts + rungs * RUNGS.seconds(paired=True) + check

    def run(self, measuring: Measuring, allowed: Collection[str]) -> None:
        """Measure all."""
        for piece in self.plan.floors():
            measuring.measure(piece, PIECES)
        if self.name != "micro":
            self._rungs(measuring, allowed)
        for piece, reference in self.plan.pieces():
            measuring.measure(piece, PIECES, reference)

    def _rungs(self, measuring: Measuring, allowed: Collection[str]) -> None:
        plan, pace = self.plan, RUNGS
        baseline = plan.baseline()
        if measuring.measure(baseline, pace).error:
            return  # everything else would be compared with it

        def measure(overrides: Sequence[str]) -> Measurement:
            return measuring.measure(plan.rung(*overrides), pace, baseline)

        tried(plan, measure)
        self._recommend(measuring, baseline, allowed)
        self._say_walls(measuring)

    def _recommend(self, measuring: Measuring, baseline: Piece, allowed: Collection[str]) -> None:
        plan = self.plan
        found, failed = nothing(plan), list[list[str]]()
        while not found.overrides and len(failed) < TRIES:
            row = chosen(plan, measuring.result, allowed, failed)
            if row is None:
                break
            # The best of many is partly the luckiest: what it gains is measured anew.
            again = plan.training(_once_more(row.overrides), *row.overrides, group="check")
            fresh = measuring.measure(again, FRESH, baseline)
            if fresh.ratio is not None and fresh.ratio.low > 1:
                found = recommendation(plan, row, fresh.ratio)
            elif fresh.error:
                found = nothing(plan, f"{' '.join(row.overrides)} could not be measured once more: {fresh.error}")
            failed.append(row.overrides)
        more = more_if_allowed(plan, measuring.result, allowed, found.expected.high, failed)
        measuring.change(recommendation=found)
        measuring.end_reference()
        if found.overrides:
            found = self._check(measuring, found)
        if found.measured is not None and found.measured.high < 1:
            found = nothing(plan, f"{' '.join(found.overrides)} looked faster, but: {found.sentence}")
        sentence = " ".join(filter(None, [found.sentence, more, plan.equal_work]))
        measuring.change(recommendation=dataclasses.replace(found, sentence=sentence))

    def _check(self, measuring: Measuring, found: Recommendation) -> Recommendation:
        """The line against the baseline, each as whole trainings in turn."""
        name = f"{' '.join(found.overrides)}, end to end"
        seconds = max(CHECK_S, 3 * self._warm_up_s(measuring))
        pairs, error = list[Pair](), None
        lines = [self.plan.lines(*self.plan.baseline().make().overrides), self.plan.lines(*found.overrides)]
        try:
            for number in range(CHECKS):
                measuring.bar.begin(f"check: whole trainings, pair {number + 1} of {CHECKS}")
                order = (0, 1) if number % 2 == 0 else (1, 0)
                speeds = {which: train(lines[which], seconds, CHECK_LIMIT_S + seconds) for which in order}
                pairs.append([speeds[0], speeds[1]])
                measuring.bar.remaining.advance(2 * (seconds + CHECK_START_S))
        except (TrainingError, OSError) as failed:
            error = f"{failed}."
        row = Measurement("check", name, "agent steps/s", severest(found.kinds.values()), found.overrides)
        row = with_pairs(row, pairs, error)
        measuring.add(row)
        if row.error:
            return dataclasses.replace(found, sentence=f"It was not checked: {row.error}")
        return checked(found, row.pairs)

    def _warm_up_s(self, measuring: Measuring) -> float:
        """Seconds before the first update, about, in which the games are stepped as in the baseline."""
        row = measuring.result.find("rungs", BASELINE)
        return self.plan.starts * row.parts.get("stepping", 0.0) / row.value if row and row.value else 0.0

    def _say_walls(self, measuring: Measuring) -> None:
        """A sentence for the baseline and for the line on what takes most of their time."""
        found = measuring.result.recommendation
        names = {"the baseline": ("rungs", BASELINE)}
        if found and found.overrides:
            names["the line"] = ("check", _once_more(found.overrides))
        rows = {who: measuring.result.find(*key) for who, key in names.items()}
        time = "the time" if self.plan.on_cpu else "the host's time, which also waits for the device"
        measuring.change(walls=[wall(who, row, time) for who, row in rows.items() if row and row.parts])


def _once_more(overrides: Sequence[str]) -> str:
    return f"{' '.join(overrides)}, once more"


def wall(who: str, row: Measurement, time: str = "the time") -> str:
    """What takes most of the time of a training, and, of the learner, how near it is to what the cores can do."""
    part = max(row.parts, key=lambda name: row.parts[name])
    share = row.parts[part]
    sentence = f"{who}: {NAMES[part]} take{'' if part == 'updating' else 's'} {share:.0%} of {time}"
    if part == "updating" and row.floor is not None and share > 0:
        sentence += f", in which they reach {row.floor.share / share:.0%} of {row.floor.what}"
    return f"{sentence}."
