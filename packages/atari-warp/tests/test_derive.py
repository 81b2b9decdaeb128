"""Rules that ALE is asked for, of a game of which they are known."""

from __future__ import annotations

import re

import numpy as np
import pytest
from ale_probe import Oracle, Play
from atari_warp.rules import Rules, say_set, say_table
from atari_warp.verify import ale_of
from derive import main


@pytest.mark.slow
def test_the_rules_of_a_game_are_found_anew_and_tested(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["game=pong", "frames=2000", "images=100"])
    printed = capsys.readouterr().out
    assert status == 0, printed
    assert "pong: rules: {score: {13: -1 binary, 14: binary}, over: [{" in printed
    assert "pong: games.yaml has the same" in printed
    agreed = re.findall(r"\| ([\d,]+) of ([\d,]+) \|", printed)
    assert len(agreed) >= 9 and all(right == of for right, of in agreed)


def test_ale_is_asked_of_a_game_for_which_it_gives_some_cartridges_up() -> None:
    oracle = Oracle("et", ale_of("et").getRAM())
    scored = oracle.first.copy()
    scored[97] += 1
    assert oracle.ask(oracle.first) == (0, 3, False) and oracle.ask(scored) == (1, 3, False)


def test_a_game_is_played_better_with_foresight_and_without_a_gap() -> None:
    play = Play.of("seaquest", 3600, seed=1)
    assert 0 < play.rewards[:1800].sum() < play.rewards[1800:].sum()
    begun = np.append(True, play.over[:-1])
    np.testing.assert_array_equal(play.before[~begun], play.after[np.flatnonzero(~begun) - 1])


@pytest.mark.parametrize(
    ("argument", "status", "said"),
    [
        ("game=pogn", 2, "game=pogn: no game that is known; nearest: pong"),
        ("gmae=pong", 2, "gmae=pong: no option; they are game="),
        ("frames=many", 2, "frames=many: takes a whole number, at least 1."),
    ],
)
def test_what_cannot_be_derived_is_one_sentence(
    argument: str, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([argument]) == status
    error = capsys.readouterr().err
    assert error.startswith(said) and error.count("\n") == 1


def test_a_game_that_takes_too_long_is_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["game=pong", "frames=1000000", "seconds=1"]) == 1
    assert capsys.readouterr().out == "pong: no rules found in 1 seconds\n"


def test_help_says_what_the_command_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "python packages/atari-warp/tools/derive.py game=pong" in capsys.readouterr().out


@pytest.mark.parametrize("values", [{21}, {0}, set(range(128, 256)), set(range(0, 256, 16)), {154, 160, 192}])
def test_a_set_of_values_is_read_as_it_was_said(values: set[int]) -> None:
    rules = Rules.read({}, {}, [{3: say_set(values)}])
    memories = np.zeros((256, 128), np.uint8)
    memories[:, 3] = np.arange(256)
    assert set(np.flatnonzero(rules.of(memories)[2])) == values


@pytest.mark.parametrize("words", ["-100 bcd", "1000 low", "7 glyph", ["10 low", {"low 10": 0}], ["bcd", {192: 100}]])
def test_a_table_is_said_in_the_words_it_was_read_from(words: object) -> None:
    (term,) = Rules.read({5: words}).terms
    assert say_table(term.table, free=True) == words


def test_lives_may_fall_with_a_byte_or_stay_while_another_says_so() -> None:
    memories = np.zeros((4, 128), np.uint8)
    memories[:, 8] = 2, 1, 0, 255
    before, lives = np.roll(memories, 1, axis=0), np.array([4, 4, 3, 2])
    assert Rules.read({}, {"first": 4, "falling": 8}).of(memories, before, lives)[1].tolist() == [4, 3, 2, 1]
    assert Rules.read({}, {8: "binary", "keep": {8: "0-1"}}).of(memories, before, lives)[1].tolist() == [2, 4, 3, 255]
    ended = Rules.read({}, {}, [{8: 0, "before 8": 1}]).of(memories, before)[2]
    assert ended.tolist() == [False, False, True, False]


def test_a_second_score_counts_in_place_of_the_first() -> None:
    rules = Rules.read({1: "binary"}, instead={2: "binary"}, most=1)
    memories = np.zeros((3, 128), np.uint8)
    memories[:, 1], memories[:, 2] = (0, 3, 0), (0, 0, 1)
    scores = rules.of(memories)[0]
    assert rules.points(scores[:-1], scores[1:]).tolist() == [1, 1]


def test_an_end_may_bring_points_in_place_of_all_others() -> None:
    rules = Rules.read({1: "binary"}, over=[{3: 1}], final={2: "-1 binary"})
    memories = np.zeros((3, 128), np.uint8)
    memories[:, 1], memories[:, 2], memories[:, 3] = (0, 3, 9), (5, 5, 5), (0, 0, 1)
    scores = rules.of(memories)[0]
    assert rules.points(scores[:-1], scores[1:]).tolist() == [3, -5]


def test_an_end_may_add_points_to_those_of_its_frame() -> None:
    rules = Rules.read({1: "-1 bcd"}, over=[{3: 1}, {3: 2, "adds": 100}], least=-1, most=-1)
    memories = np.zeros((5, 128), np.uint8)
    memories[:, 1], memories[:, 3] = (0x99, 0, 0, 1, 1), (0, 0, 1, 2, 2)
    scores = rules.of(memories)[0]
    assert rules.points(scores[:-1], scores[1:]).tolist() == [-1, 0, 99, 100]


def test_a_game_may_be_over_when_its_score_falls() -> None:
    rules = Rules.read({1: "bcd"}, over=[{"fell": 1}, {3: 1}])
    memories = np.zeros((4, 128), np.uint8)
    memories[:, 1], memories[:, 3] = (0x10, 0x12, 0x09, 0x09), (0, 0, 0, 1)
    assert rules.of(memories[1:], memories[:-1])[2].tolist() == [False, True, True]
