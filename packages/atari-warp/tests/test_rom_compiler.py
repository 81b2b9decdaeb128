"""Compiled code of games, compared with the interpreter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from atari_warp import ConsoleBatch, Emulator, find_game, translation
from atari_warp.compile import trace_rom
from atari_warp.games import read_rom
from atari_warp.rom_compiler import rom_code


@pytest.mark.parametrize(
    "game",
    [
        pytest.param("pong", marks=pytest.mark.slow),
        pytest.param("ms_pacman", id="F8", marks=pytest.mark.integration),
        pytest.param("solaris", id="F6", marks=pytest.mark.integration),
        pytest.param("elevator_action", id="F8 with RAM", marks=pytest.mark.integration),
        pytest.param("pitfall2", id="DPC", marks=pytest.mark.integration),
        pytest.param("robotank", id="FE", marks=pytest.mark.integration),
    ],
)
def test_compiled_code_equals_the_interpreter(game: str) -> None:
    compiled = Emulator(game, 4, compile_rom=True)
    compiled.wait_until_compiled()
    check_equal(compiled, Emulator(game, 4))


@pytest.mark.integration
def test_code_that_is_compiled_in_part_equals_the_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter, game, draws = (
        Emulator("montezuma_revenge", 4),
        find_game("montezuma_revenge"),
        np.random.default_rng(0),
    )
    monkeypatch.setattr("warp.config.kernel_cache_dir", str(tmp_path))
    monkeypatch.setattr(translation, "_translations", {})
    trace = trace_rom(game, None)
    known = trace * (draws.random(len(trace)) < 0.7)
    translation.translation_entry(game, read_rom(game), ".trace").write(tmp_path / "atari_warp", known.tobytes())
    compiled = Emulator(game, 4, compile_rom=True)
    compiled.wait_until_compiled()
    check_equal(compiled, interpreter)


def check_equal(compiled: Emulator, interpreter: Emulator) -> None:
    assert compiled._kernel is not interpreter._kernel
    draws = np.random.default_rng(1)
    for step in range(300):
        actions = draws.integers(18, size=4)
        for each in (interpreter, compiled):
            each.step(actions, 4, step % 3)
        np.testing.assert_array_equal(compiled.ram(), interpreter.ram())
        np.testing.assert_array_equal(compiled.screen(), interpreter.screen())
        found, expected = compiled.registers(), interpreter.registers()
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name], name)


@pytest.mark.integration
def test_a_game_goes_on_when_its_compiled_code_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interpreted = ConsoleBatch("pong", 6, threads=2, reset_pool=2)
    monkeypatch.setattr("warp.config.kernel_cache_dir", str(tmp_path))
    monkeypatch.setattr(translation, "_translations", {})
    compiled = ConsoleBatch("pong", 6, threads=2, reset_pool=2, compile_rom=True)
    assert compiled._kernel is interpreted._kernel
    draws = np.random.default_rng(1)
    for each in (interpreted, compiled):
        each.reset(range(6))
    for step in range(400):
        actions = draws.integers(18, size=6)
        for each in (interpreted, compiled):
            each.step(actions)
        if step == 200:
            compiled.wait_until_compiled()
            assert compiled._kernel is not interpreted._kernel
        np.testing.assert_array_equal(compiled.observations, interpreted.observations)
        np.testing.assert_array_equal(compiled.read_outcomes(), interpreted.read_outcomes())
    interpreted.load_state(compiled.save_state())
    for _ in range(100):
        actions = draws.integers(18, size=6)
        for each in (interpreted, compiled):
            each.step(actions)
        np.testing.assert_array_equal(compiled.observations, interpreted.observations)


def test_compiled_code_is_reproducible() -> None:
    pong = find_game("pong")
    rom, trace = read_rom(pong), trace_rom(pong, None)
    first, second = (rom_code(pong, rom, each) for each in (trace, trace_rom(pong, None)))
    assert second == first != rom_code(pong, rom, np.zeros_like(trace))
