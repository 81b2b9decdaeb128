"""Known games: their actions, starts and rules."""

from __future__ import annotations

import pytest
from atari_warp import Emulator, find_game, known_games
from atari_warp.ale import make_ale


@pytest.mark.integration
def test_actions_of_all_games_are_those_of_ale() -> None:
    for game in known_games().values():
        ale = make_ale(game.name)
        assert list(game.minimal) == [action.value for action in ale.getMinimalActionSet()], game.name
        assert list(game.legal) == [action.value for action in ale.getLegalActionSet()], game.name


def test_every_game_starts_and_has_rules() -> None:
    games = known_games()
    assert len(games) == 104
    for game in games.values():
        emulator = Emulator(game, 2)
        emulator.step([0, 1], frames=4)
        assert (emulator.registers()["frames"] == game.frames + 4).all(), game.name
        assert emulator.screen().shape == (2, game.rows, 160) and emulator.ram().any(), game.name
        assert game.rules.terms and not emulator.terminated.any(), game.name
        assert (emulator.lives >= 0).all(), game.name


def test_a_chosen_mode_holds_from_the_first_frame() -> None:
    emulator, again = (Emulator(find_game("pong").at(mode=1, difficulty=1)) for _ in range(2))
    assert emulator.screen().any() and emulator.reward.tolist() == [0]
    default = Emulator("pong")
    default.step([0])
    emulator.step([0])
    assert (emulator.ram() != default.ram()).any()
    again.reset()
    assert emulator.registers()["frames"] == again.registers()["frames"] + 1


def test_a_game_has_a_short_representation() -> None:
    assert repr(find_game("pong")) == "<Game pong>"
    assert repr(find_game("pong").at(mode=1)) == "<Game pong, mode 1>"
