"""Which line is recommended, and what is said when it does not hold its promise."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from made import make_result, measured
from plans import toy

from dqnspeed.bench.plan import Plan
from dqnspeed.bench.recommend import (
    SAFE,
    WIDER,
    checked,
    chosen,
    more_if_allowed,
    recommendation,
    tried,
)
from dqnspeed.bench.result import Interval, Measurement, Result
from dqnspeed.config.changes import ALGORITHM, EQUIVALENT

BF16, LAST, THREADS, GAMES = (
    "execution.precision=bf16", "execution.channels_last=true", "execution.threads=1", "num_envs=4",
)  # fmt: skip

pytestmark = pytest.mark.slow


def rungs(**gains: float) -> Result:
    """A result with these gains over the baseline, by overrides, give or take 0.03."""
    rows = [
        Measurement("rungs", name, "", overrides=name.split(), ratio=Interval(gain, gain - 0.03, gain + 0.03))
        for name, gain in gains.items()
    ]
    return make_result(measurements=[*rows, Measurement("rungs", "broken", "agent steps/s", error="it broke.")])


def line_of(result: Result, allowed: tuple[str, ...] = SAFE) -> list[str] | None:
    row = chosen(toy(), result, allowed)
    return None if row is None else row.overrides


def test_the_fastest_line_of_the_kinds_allowed_is_chosen() -> None:
    result = rungs(**{BF16: 1.3, LAST: 1.1, GAMES: 3.0})
    assert line_of(result) == [BF16]
    assert line_of(result, WIDER) == [GAMES]
    assert more_if_allowed(toy(), result, SAFE, 1.3).startswith(f"allow=algorithm would allow {GAMES}, ")
    assert more_if_allowed(toy(), result, WIDER, 1.3) == ""
    short = rungs(**{BF16: 2.99, f"{GAMES} {LAST}": 3.0})  # the shorter one, as good, is allowed, but did not hold
    assert more_if_allowed(toy(), short, SAFE, 1.0) == ""
    assert more_if_allowed(toy(), short, SAFE, 1.0, [[BF16]]).startswith("allow=algorithm would allow ")


def test_a_part_that_adds_nothing_beyond_noise_is_left_out() -> None:
    assert line_of(rungs(**{f"{BF16} {LAST}": 1.32, BF16: 1.3})) == [BF16]
    assert line_of(rungs(**{f"{BF16} {LAST}": 1.5, BF16: 1.3})) == [BF16, LAST]


def test_a_slow_slice_of_the_reference_makes_no_line_the_best() -> None:
    result = rungs(**{LAST: 1.05, f"{BF16} {LAST}": 1.34})
    wide = [
        dataclasses.replace(row, ratio=Interval(1.05, 1.01, 1.6)) if row.overrides == [LAST] else row
        for row in result.measurements
    ]
    assert line_of(dataclasses.replace(result, measurements=wide)) == [BF16, LAST]
    assert chosen(toy(), result, SAFE, without=[[BF16, LAST]]) is not None


def test_a_line_that_cannot_be_had_here_any_more_is_passed_over() -> None:
    assert line_of(rungs(**{"execution=gone": 2.0, BF16: 1.3})) == [BF16]


def test_nothing_is_recommended_where_nothing_pays() -> None:
    assert line_of(rungs(**{BF16: 1.01, LAST: 0.6})) is None


def test_every_part_of_a_line_has_its_kind_and_games_bring_their_work() -> None:
    row = Measurement("rungs", "", "agent steps/s", overrides=[BF16, THREADS, GAMES])
    found = recommendation(toy(), row, Interval(1.5, 1.4, 1.6))
    assert found.kinds == {BF16: EQUIVALENT, THREADS: EQUIVALENT, GAMES: ALGORITHM}
    assert found.line.endswith(f"{BF16} {THREADS} {GAMES} algo.batch_size=32 algo.steps_per_update=1")
    assert "'model.hidden=[8]'" in found.line


@pytest.mark.parametrize(("gain", "agrees"), [(1.45, True), (1.2, False), (2.0, False)])
def test_a_check_that_disagrees_says_so(gain: float, agrees: bool) -> None:
    expected = recommendation(toy(), Measurement("rungs", "", "", overrides=[BF16]), Interval(1.5, 1.4, 1.6))
    pairs = [[100.0, 100 * gain], [90.0, 91 * gain], [110.0, 109 * gain], [99.0, 99 * gain], [101.0, 101 * gain]]
    found = checked(expected, pairs)
    assert found.measured is not None and found.measured.holds(gain)
    assert ("not what was expected" in found.sentence) is not agrees


def test_what_pays_alone_is_tried_together_and_with_each_way_to_share_the_work() -> None:
    gains, seen = {BF16: 1.3, LAST: 1.1, THREADS: 1.2, GAMES: 0.9}, list[str]()

    def measure(overrides: tuple[str, ...]) -> Measurement:
        seen.append(" ".join(overrides))
        speed = 100.0
        for override in overrides:
            speed *= gains.get(override, 1.0)
        return measured(Measurement("rungs", seen[-1], "", overrides=list(overrides)), speed, 100.0)

    tried(toy(), measure)
    if THREADS in seen:  # there is one core
        assert f"{BF16} {THREADS}" in seen
    assert {f"{BF16} parallelism=overlap", f"{BF16} parallelism=process {GAMES}"} <= set(seen)
    assert len(seen) == len(set(seen))
    alone = [choice for choices in toy().axes().values() for choice in choices]
    assert set(seen) <= {" ".join(choice) for choice in alone} | {f"{BF16} {THREADS}"} | {
        f"{BF16} parallelism={way} {GAMES}" for way in ("overlap", "process")
    } | {f"{BF16} parallelism={way}" for way in ("overlap", "process")}  # fmt: skip


def test_what_the_user_chose_is_not_tried() -> None:
    seen = list[str]()

    def measure(overrides: Sequence[str]) -> Measurement:
        seen.append(" ".join(overrides))
        return Measurement("rungs", seen[-1], "", overrides=list(overrides))

    tried(Plan([*toy().overrides, "num_envs=2", BF16]), measure)
    assert seen and not any("num_envs" in one or BF16 in one for one in seen)
