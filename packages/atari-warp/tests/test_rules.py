"""Rules of games: their words, and their results on memories."""

from __future__ import annotations

import numpy as np
import pytest
from atari_warp.rules import Rules
from rule_evaluation import evaluate, points_between
from rule_words import set_words, table_words


def memories(count: int, **bytes_: tuple[int, ...]) -> np.ndarray:
    """Memories ``(count, 128) uint8`` with some bytes, for example ``b3=(0, 1)``."""
    found = np.zeros((count, 128), np.uint8)
    for name, values in bytes_.items():
        found[:, int(name[1:])] = values
    return found


@pytest.mark.parametrize("values", [{21}, {0}, set(range(128, 256)), set(range(0, 256, 16)), {154, 160, 192}])
def test_words_for_a_set_of_values_can_be_read_again(values: set[int]) -> None:
    rules = Rules.read({}, {}, [{3: set_words(values)}])
    over = evaluate(rules, memories(256, b3=tuple(range(256))))[2]
    assert set(np.flatnonzero(over)) == values


@pytest.mark.parametrize("words", ["-100 bcd", "1000 low", "7 glyph", ["10 low", {"low 10": 0}], ["bcd", {192: 100}]])
def test_words_for_a_table_are_those_it_was_read_from(words: object) -> None:
    (term,) = Rules.read({5: words}).terms
    assert table_words(term.table, free=True) == words


def test_a_life_is_lost_when_a_byte_falls() -> None:
    after, lives = memories(4, b8=(2, 1, 0, 255)), np.array([4, 4, 3, 2])
    before = np.roll(after, 1, axis=0)
    assert evaluate(Rules.read({}, {"first": 4, "falling": 8}), after, before, lives)[1].tolist() == [4, 3, 2, 1]


def test_lives_are_kept_while_a_byte_has_certain_values() -> None:
    after, lives = memories(4, b8=(2, 1, 0, 255)), np.array([4, 4, 3, 2])
    rules = Rules.read({}, {8: "binary", "keep": {8: "0-1"}})
    assert evaluate(rules, after, np.roll(after, 1, axis=0), lives)[1].tolist() == [2, 4, 3, 255]


def test_a_way_to_end_may_depend_on_the_previous_frame() -> None:
    after = memories(4, b8=(2, 1, 0, 255))
    over = evaluate(Rules.read({}, {}, [{8: 0, "before 8": 1}]), after, np.roll(after, 1, axis=0))[2]
    assert over.tolist() == [False, False, True, False]


def test_a_second_score_replaces_the_first() -> None:
    rules = Rules.read({1: "binary"}, instead={2: "binary"}, most=1)
    scores = evaluate(rules, memories(3, b1=(0, 3, 0), b2=(0, 0, 1)))[0]
    assert points_between(rules, scores[:-1], scores[1:]).tolist() == [1, 1]


def test_final_points_replace_all_others() -> None:
    rules = Rules.read({1: "binary"}, over=[{3: 1}], final={2: "-1 binary"})
    scores = evaluate(rules, memories(3, b1=(0, 3, 9), b2=(5, 5, 5), b3=(0, 0, 1)))[0]
    assert points_between(rules, scores[:-1], scores[1:]).tolist() == [3, -5]


def test_a_way_to_end_may_add_points() -> None:
    rules = Rules.read({1: "-1 bcd"}, over=[{3: 1}, {3: 2, "adds": 100}], least=-1, most=-1)
    scores = evaluate(rules, memories(5, b1=(0x99, 0, 0, 1, 1), b3=(0, 0, 1, 2, 2)))[0]
    assert points_between(rules, scores[:-1], scores[1:]).tolist() == [-1, 0, 99, 100]


def test_a_game_may_end_when_its_score_falls() -> None:
    rules = Rules.read({1: "bcd"}, over=[{"fell": 1}, {3: 1}])
    found = memories(4, b1=(0x10, 0x12, 0x09, 0x09), b3=(0, 0, 0, 1))
    assert evaluate(rules, found[1:], found[:-1])[2].tolist() == [False, True, True]
