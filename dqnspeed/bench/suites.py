"""The suites: which pieces are measured, in which order, and how long."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from dqnspeed.bench import recommend
from dqnspeed.bench.counting import STEPS
from dqnspeed.bench.pairs import SamplingPlan
from dqnspeed.bench.plan import BASELINE, TRAININGS, Plan
from dqnspeed.bench.result import Measurement, Pair, Recommendation
from dqnspeed.bench.session import BenchSession, with_pairs
from dqnspeed.cli.errors import RunError
from dqnspeed.config.schema import KINDS
from dqnspeed.system.noise import WATCH_S

SUITES = ("quick", "full", "micro")
CHECK = "check"  # group of the recommended command, measured again
PART_SAMPLING = SamplingPlan(settle_s=0.1, slice_s=0.3, num_pairs=5)
TRAINING_SAMPLING = SamplingPlan(settle_s=0.25, slice_s=0.8, num_pairs=5, start_s=7.0)
CHECK_SAMPLING = SamplingPlan(settle_s=0.3, slice_s=1.0, num_pairs=8, start_s=7.0)
MAX_CANDIDATES = 2  # trainings that are measured again; the first that is still faster is recommended
WHOLE_TRAININGS = 5  # pairs
WHOLE_S, WHOLE_START_S, WHOLE_LIMIT_S = 6.0, 5.0, 120.0  # seconds of training, of its start and end, and at most
NOTHING_FASTER = "No allowed change is faster than the baseline beyond noise."
PART_NAMES = {
    "sampling": "drawing batches takes", "updating": "the learner's updates take", "acting": "choosing actions takes",
    "stepping": "stepping the games takes",
}  # fmt: skip


class Suite:
    """A suite with the overrides of all its pieces.

    Raises:
        ConfigError: the baseline cannot be trained here.
    """

    def __init__(self, name: str, overrides: Sequence[str]):
        self.name, self.plan = name, Plan(overrides, full=name == "full")

    def seconds(self) -> float:
        """Estimated duration."""
        paired = [piece.reference is not None for piece in (*self.plan.limits(), *self.plan.parts())]
        total = 2 * WATCH_S + sum(map(PART_SAMPLING.seconds, paired))
        if self.name == "micro":
            return total
        trainings = 1 + sum(map(len, self.plan.choices().values())) + recommend.MAX_COMBINATIONS
        check = CHECK_SAMPLING.seconds(paired=True) + 2 * WHOLE_TRAININGS * (WHOLE_S + WHOLE_START_S)
        return total + trainings * TRAINING_SAMPLING.seconds(paired=True) + check

    def run(self, session: BenchSession, allowed: Collection[str]) -> None:
        """Measure all pieces, and recommend a command whose changes are of the ``allowed`` kinds."""
        for piece in self.plan.limits():
            session.measure(piece, PART_SAMPLING)
        if self.name != "micro" and session.measure(self.plan.baseline, TRAINING_SAMPLING).error is None:
            recommend.try_choices(
                self.plan, lambda overrides: session.measure(self.plan.training(*overrides), TRAINING_SAMPLING)
            )
            self.recommend(session, allowed)
            self._find_bottlenecks(session)
        for piece in self.plan.parts():
            session.measure(piece, PART_SAMPLING)

    def recommend(self, session: BenchSession, allowed: Collection[str]) -> None:
        """Choose a training, measure it again and end to end, and recommend it if it is still faster."""
        plan, found, tried = self.plan, recommend.recommendation(self.plan, sentence=NOTHING_FASTER), list[list[str]]()
        while len(tried) < MAX_CANDIDATES and (row := recommend.choose(plan, session.result, allowed, tried)):
            tried.append(row.overrides)
            # The fastest of many is partly the luckiest, so only new pairs say how much faster it is.
            piece = plan.training(*row.overrides, name=_again(row.overrides), group=CHECK)
            again = session.measure(piece, CHECK_SAMPLING)
            if again.ratio is not None and again.ratio.low > 1:
                found = recommend.recommendation(plan, row.overrides, again.ratio)
                break
            if again.error:
                found = recommend.recommendation(plan, sentence=f"{piece.name}: {again.error}")
        session.update(recommendation=found)
        session.end_reference()
        if found.overrides:
            found = self._check(session, found)
        if found.measured is not None and found.measured.high < 1:
            sentence = f"{' '.join(found.overrides)} looked faster, but: {found.sentence}"
            found = recommend.recommendation(plan, sentence=sentence)
        sentence = " ".join(filter(None, [found.sentence, plan.equal_work]))
        session.update(recommendation=dataclasses.replace(found, sentence=sentence))

    def _check(self, session: BenchSession, found: Recommendation) -> Recommendation:
        """Compare the recommended command with the baseline in whole trainings."""
        seconds, pairs = max(WHOLE_S, 3 * self._warm_up_s(session)), list[Pair]()
        sides = [self.plan.equal_work_overrides(), self.plan.equal_work_overrides(*found.overrides)]
        kind = max(found.kinds.values(), key=KINDS.index)
        row = Measurement(CHECK, f"{' '.join(found.overrides)}, end to end", f"{STEPS}/s", kind, found.overrides)
        try:
            for number in range(WHOLE_TRAININGS):
                session.progress.start(f"{CHECK}: whole trainings, pair {number + 1} of {WHOLE_TRAININGS}")
                order = (0, 1) if number % 2 == 0 else (1, 0)
                speeds = {side: recommend.train(sides[side], seconds, WHOLE_LIMIT_S + seconds) for side in order}
                pairs.append([speeds[0], speeds[1]])
                session.progress.advance(2 * (seconds + WHOLE_START_S))
        except (RunError, OSError) as error:
            session.add(dataclasses.replace(row, error=str(error)))
            return dataclasses.replace(found, sentence=f"The command was not checked: {error}")
        row = with_pairs(row, pairs)
        session.add(row)
        return recommend.with_check(found, row.ratio)

    def _warm_up_s(self, session: BenchSession) -> float:
        """Estimated seconds before the first update, when the baseline only steps."""
        row = session.result.find(TRAININGS, BASELINE)
        return self.plan.learning_starts * row.parts.get("stepping", 0.0) / row.value if row and row.value else 0.0

    def _find_bottlenecks(self, session: BenchSession) -> None:
        found = session.result.recommendation
        keys = {"the baseline": (TRAININGS, BASELINE)}
        if found and found.overrides:
            keys["the recommended command"] = (CHECK, _again(found.overrides))
        rows = {who: session.result.find(*key) for who, key in keys.items()}
        session.update(bottlenecks=[bottleneck(who, row) for who, row in rows.items() if row and row.parts])


def _again(overrides: Sequence[str]) -> str:
    return f"{' '.join(overrides)}, measured again"


def bottleneck(who: str, row: Measurement) -> str:
    """A sentence on the part that takes most of the host's time in a training."""
    part, share = max(row.parts.items(), key=lambda item: item[1])
    return f"{who}: {PART_NAMES[part]} {share:.0%} of the host's time."
