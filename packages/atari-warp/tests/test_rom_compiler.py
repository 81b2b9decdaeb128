"""Compiled code of games, compared with the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from atari_warp import Emulator, consoles, find_game
from atari_warp.games import read_rom


@pytest.mark.parametrize(
    ("game", "known"),
    [
        pytest.param("pong", 1.0, id="all of its code", marks=pytest.mark.slow),
        pytest.param("montezuma_revenge", 0.7, id="E0, partly interpreted", marks=pytest.mark.slow),
        pytest.param("ms_pacman", 1.0, id="F8", marks=pytest.mark.integration),
        pytest.param("solaris", 1.0, id="F6", marks=pytest.mark.integration),
        pytest.param("elevator_action", 1.0, id="F8 with RAM", marks=pytest.mark.integration),
        pytest.param("pitfall2", 1.0, id="DPC", marks=pytest.mark.integration),
        pytest.param("robotank", 1.0, id="FE", marks=pytest.mark.integration),
    ],
)
def test_compiled_code_equals_the_interpreter(game: str, known: float, monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter = Emulator(game, 4)
    if known < 1:
        trace, draws = consoles.Consoles.trace, np.random.default_rng(0)
        monkeypatch.setattr(
            consoles.Consoles, "trace", lambda self: trace(self) * (draws.random(len(self._trace)) < known)
        )
    consoles._traced_code.cache_clear()
    compiled = Emulator(game, 4, compile_rom=True)
    assert compiled._kernel is not interpreter._kernel
    draws = np.random.default_rng(1)
    for step in range(300):
        actions = draws.integers(18, size=4)
        for each in (interpreter, compiled):
            each.step(actions, 4, step % 3)
        found, expected = compiled.save_state(), interpreter.save_state()
        np.testing.assert_array_equal(found["consoles"], expected["consoles"])
        np.testing.assert_array_equal(compiled.screen(), interpreter.screen())


def test_compiled_code_is_reproducible() -> None:
    """The kernel cache finds a game's code by its text."""
    pong = find_game("pong")
    first = consoles._traced_code(pong, None, read_rom(pong))
    consoles._traced_code.cache_clear()
    assert consoles._traced_code(pong, None, read_rom(pong)) == first
    assert first.count("TAKE") == 1 and first.count("at_") > 400
