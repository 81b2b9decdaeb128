"""Derivation of rules from ALE, for games whose rules are known."""

from __future__ import annotations

import re

import numpy as np
import pytest
from ale_probe import AleProbe, Play
from atari_warp.ale import make_ale
from derive import main


@pytest.mark.integration
def test_the_rules_of_a_game_are_derived_and_compared(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["game=pong", "frames=2000", "images=100"])
    printed = capsys.readouterr().out
    assert status == 0, printed
    assert "pong: rules: {score: {13: -1 binary, 14: binary}, over: [{" in printed
    assert "pong: games.yaml has the same rules" in printed
    agreed = re.findall(r"\| ([\d,]+) of ([\d,]+) \|", printed)
    assert len(agreed) >= 9 and all(right == of for right, of in agreed)


def test_ale_is_probed_with_a_game_that_needs_several_tries_to_start() -> None:
    probe = AleProbe("et", make_ale("et").getRAM())
    scored = probe.first.copy()
    scored[97] += 1
    assert probe.ask(probe.first) == (0, 3, False) and probe.ask(scored) == (1, 3, False)


def test_play_with_foresight_scores_more_and_has_no_gaps() -> None:
    play = Play.of("seaquest", 3600, seed=1)
    assert 0 < play.rewards[:1800].sum() < play.rewards[1800:].sum()
    first = np.append(True, play.over[:-1])
    np.testing.assert_array_equal(play.before[~first], play.after[np.flatnonzero(~first) - 1])


@pytest.mark.parametrize(
    ("argument", "error"),
    [
        ("game=pogn", "game=pogn: unknown game. Did you mean pong"),
        ("gmae=pong", "gmae=pong: unknown option. Choose from game=, "),
        ("frames=many", "frames=many: must be an integer of at least 1."),
    ],
)
def test_bad_options_are_refused(argument: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([argument]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(error) and printed.count("\n") == 1


def test_a_game_that_takes_too_long_is_abandoned(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["game=pong", "frames=1000000", "seconds=1"]) == 1
    assert capsys.readouterr().out == "pong: no rules found in 1 seconds\n"


def test_help_shows_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "derive.py game=pong" in capsys.readouterr().out
