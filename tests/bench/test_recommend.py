"""The recommended command, and what is said if it does not keep its promise."""

from __future__ import annotations

import dataclasses

import pytest
from example_result import make_result, measured
from plans import toy

from dqnspeed.bench.recommend import (
    ANY_ALGORITHM,
    SAME_LEARNING,
    choose,
    recommendation,
    try_choices,
    with_check,
)
from dqnspeed.bench.result import Interval, Measurement, Result
from dqnspeed.config.changes import ALGORITHM, EQUIVALENT

BF16, LAST, THREADS, GAMES = (
    "execution.precision=bf16", "execution.channels_last=true", "execution.threads=1", "num_envs=4",
)  # fmt: skip

pytestmark = pytest.mark.slow


def trainings(**gains: float) -> Result:
    """A result with gains over the baseline, by overrides, give or take 0.03."""
    rows = [
        Measurement("trainings", name, "", overrides=name.split(), ratio=Interval(gain, gain - 0.03, gain + 0.03))
        for name, gain in gains.items()
    ]
    return make_result(measurements=[*rows, Measurement("trainings", "broken", "agent steps/s", error="it broke.")])


def chosen_from(result: Result, allowed: tuple[str, ...] = SAME_LEARNING) -> list[str] | None:
    row = choose(toy(), result, allowed)
    return None if row is None else row.overrides


def test_the_fastest_training_of_the_allowed_kinds_is_chosen() -> None:
    result = trainings(**{BF16: 1.3, LAST: 1.1, GAMES: 3.0})
    assert chosen_from(result) == [BF16]
    assert chosen_from(result, ANY_ALGORITHM) == [GAMES]


def test_a_part_that_adds_nothing_beyond_noise_is_left_out() -> None:
    assert chosen_from(trainings(**{f"{BF16} {LAST}": 1.32, BF16: 1.3})) == [BF16]
    assert chosen_from(trainings(**{f"{BF16} {LAST}": 1.5, BF16: 1.3})) == [BF16, LAST]


def test_a_slow_slice_of_the_reference_makes_no_training_the_fastest() -> None:
    result = trainings(**{LAST: 1.05, f"{BF16} {LAST}": 1.34})
    wide = [
        dataclasses.replace(row, ratio=Interval(1.05, 1.01, 1.6)) if row.overrides == [LAST] else row
        for row in result.measurements
    ]
    assert chosen_from(dataclasses.replace(result, measurements=wide)) == [BF16, LAST]
    assert choose(toy(), result, SAME_LEARNING, without=[[BF16, LAST]]) is not None


def test_nothing_is_recommended_if_nothing_is_faster() -> None:
    assert chosen_from(trainings(**{BF16: 1.01, LAST: 0.6})) is None


def test_every_override_of_a_command_has_its_kind_and_games_keep_the_work() -> None:
    found = recommendation(toy(), [BF16, THREADS, GAMES], Interval(1.5, 1.4, 1.6))
    assert found.kinds == {BF16: EQUIVALENT, THREADS: EQUIVALENT, GAMES: ALGORITHM}
    assert found.line.endswith(f"{BF16} {THREADS} {GAMES} algo.batch_size=32 algo.steps_per_update=1")
    assert "'model.hidden=[8]'" in found.line


@pytest.mark.parametrize(("gain", "agrees"), [(1.45, True), (1.2, False), (2.0, False)])
def test_a_check_that_disagrees_says_so(gain: float, agrees: bool) -> None:
    expected = recommendation(toy(), [BF16], Interval(1.5, 1.4, 1.6))
    found = with_check(expected, Interval(gain, gain - 0.01, gain + 0.01))
    assert found.measured is not None and found.measured.contains(gain)
    assert ("not what was expected" in found.sentence) is not agrees


def test_choices_that_are_faster_alone_are_tried_together_and_with_each_parallelism() -> None:
    gains, seen = {BF16: 1.3, LAST: 1.1, THREADS: 1.2, GAMES: 0.9}, list[str]()

    def measure(overrides: tuple[str, ...]) -> Measurement:
        seen.append(" ".join(overrides))
        speed = 100.0
        for override in overrides:
            speed *= gains.get(override, 1.0)
        return measured(Measurement("trainings", seen[-1], "", overrides=list(overrides)), speed, 100.0)

    try_choices(toy(), measure)
    if THREADS in seen:  # there is one core
        assert f"{BF16} {THREADS}" in seen
    assert {f"{BF16} parallelism=overlap", f"{BF16} parallelism=process {GAMES}"} <= set(seen)
    assert len(seen) == len(set(seen))
