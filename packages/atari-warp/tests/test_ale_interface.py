"""Interface of ALE: the same results as ale_py's, and errors of the same types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ale_py
import numpy as np
import pytest
from ale_py import roms
from atari_warp import ALEInterface, EmulatorError
from PIL import Image

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def make_pair(game: str, **settings: int) -> tuple[ALEInterface, Any]:
    """Interface of ours and of ALE, without repeated actions."""
    pair = ALEInterface(compile_rom=False), ale_py.ALEInterface()
    for ale in pair:
        ale.setFloat("repeat_action_probability", 0.0)
        for name, value in settings.items():
            ale.setInt(name, value)
        ale.loadROM(roms.get_rom_path(game))
    return pair


def state_of(ale: Any) -> tuple[Any, ...]:
    """Results of all methods that tell about a game."""
    arrays = ale.getRAM(), ale.getScreen(), ale.getScreenRGB(), ale.getScreenGrayscale()
    numbers = ale.lives(), ale.getFrameNumber(), ale.getEpisodeFrameNumber(), ale.getScreenDims(), ale.getRAMSize()
    ends = ale.game_over(), ale.game_over(with_truncation=False), ale.game_truncated()
    return (*((array.dtype, array.shape, array.tobytes()) for array in arrays), *numbers, *ends)


@pytest.mark.parametrize("game", ["breakout", "air_raid", "skiing", "name_this_game"])
def test_a_game_equals_ale(game: str) -> None:
    ours, theirs = make_pair(game, frame_skip=3, max_num_frames_per_episode=450)
    for method in ("getLegalActionSet", "getMinimalActionSet", "getAvailableModes", "getAvailableDifficulties"):
        assert getattr(ours, method)() == getattr(theirs, method)()
    draws = np.random.default_rng(1)
    for step in range(200):
        action = ours.getLegalActionSet()[int(draws.integers(len(ours.getLegalActionSet())))]
        assert ours.act(action) == theirs.act(action)
        if step % 10 == 0:
            assert state_of(ours) == state_of(theirs), step
        if step == 60:
            for ale in (ours, theirs):
                ale.setRAM(20, 77)
        if step == 100 or (ours.game_over() and step % 7 == 0):
            for ale in (ours, theirs):
                ale.setMode(ale.getAvailableModes()[-1])
                ale.setDifficulty(ale.getAvailableDifficulties()[-1])
                ale.reset_game()
            assert state_of(ours) == state_of(theirs), step
    assert ours.game_truncated() or ours.getFrameNumber() > 450
    for ale in (ours, theirs):
        ale.loadROM(roms.get_rom_path(game))  # the console is switched on, at its default mode
    assert state_of(ours) == state_of(theirs)


def test_settings_apply_to_the_next_rom_as_in_ale() -> None:
    ours, theirs = make_pair("pong")
    for ale in (ours, theirs):
        ale.setInt("frame_skip", 5)
        ale.setInt("max_num_frames_per_episode", 3)
        ale.setFloat("repeat_action_probability", 1.0)
        for _ in range(4):
            ale.act(3)
    assert state_of(ours) == state_of(theirs)
    for key in ("frame_skip", "max_num_frames_per_episode", "random_seed", "nonsense"):
        assert ours.getInt(key) == theirs.getInt(key)
    for key in ("sound", "display_screen", "color_averaging", "nonsense"):
        assert ours.getBool(key) is theirs.getBool(key)
    assert ours.getFloat("repeat_action_probability") == 1.0 and ours.getFloat("nonsense") == -1.0
    assert ours.getString("record_screen_dir") == "" == ours.getString("nonsense")


def test_a_rom_is_found_by_the_name_of_a_game_or_by_its_path() -> None:
    states = set()
    for rom in ("seaquest", roms.get_rom_path("seaquest"), str(roms.get_rom_path("seaquest"))):
        ale = ALEInterface(compile_rom=False)
        ale.loadROM(rom)
        states.add(state_of(ale))
    assert len(states) == 1


def test_roms_are_recognized_by_their_content(tmp_path: Path) -> None:
    copied, other = tmp_path / "copied.bin", tmp_path / "pong.bin"
    copied.write_bytes(roms.get_rom_path("pong").read_bytes())
    other.write_bytes(bytes(2048))
    assert ALEInterface.isSupportedROM(copied) == ale_py.ALEInterface.isSupportedROM(copied) == "pong"
    assert ALEInterface.isSupportedROM(other) is ale_py.ALEInterface.isSupportedROM(other) is None
    with pytest.raises(RuntimeError, match=r"none\.bin: there is no such file"):
        ALEInterface.isSupportedROM(tmp_path / "none.bin")


def test_a_picture_is_written_as_png(tmp_path: Path) -> None:
    ours, _ = make_pair("air_raid")
    for _ in range(30):
        ours.act(0)
    ours.saveScreenPNG(tmp_path / "screen.png")
    with Image.open(tmp_path / "screen.png") as image:
        np.testing.assert_array_equal(np.asarray(image), ours.getScreenRGB())


@pytest.mark.parametrize("method", ["getRAM", "getScreen", "getScreenRGB", "getScreenGrayscale"])
def test_buffers_are_filled_or_refused_as_in_ale(method: str) -> None:
    ours, theirs = make_pair("pong")
    for ale in (ours, theirs):
        ale.act(0)
    expected = getattr(theirs, method)()
    buffer = np.empty_like(expected)
    assert getattr(ours, method)(buffer) is None
    np.testing.assert_array_equal(buffer, expected)
    kept = getattr(ours, method)()
    ours.act(3)
    np.testing.assert_array_equal(kept, expected)  # a copy
    strided = np.zeros((2 * len(expected), *expected.shape[1:]), np.uint8)[::2]
    for wrong in (np.zeros(expected.shape, np.int32), np.zeros(7, np.uint8), strided, expected[None].repeat(2, 0)):
        kinds = []
        for ale in (ours, theirs):
            with pytest.raises((TypeError, RuntimeError)) as refused:
                getattr(ale, method)(wrong)
            kinds.append(refused.type)
        assert kinds[0] is kinds[1]


@pytest.mark.parametrize(
    ("use", "kind", "message"),
    [
        (
            lambda ale: ale.setInt("frame_skp", 1),
            RuntimeError,
            r"key=frame_skp: there is no such setting .* frame_skip\?",
        ),
        (lambda ale: ale.setInt("frame_skip", 1.5), TypeError, r"frame_skip=1\.5: must be an integer\."),
        (lambda ale: ale.setFloat("repeat_action_probability", "a"), TypeError, r"='a': must be a number\."),
        (lambda ale: ale.setBool("display_screen", 1), TypeError, r"display_screen=1: must be True or False\."),
        (lambda ale: ale.setBool("sound", True), EmulatorError, r"sound=True: the emulator has no sound\."),
        (lambda ale: ale.setBool("color_averaging", True), EmulatorError, r"pictures are not averaged\."),
        (lambda ale: ale.getAudio(), EmulatorError, r"getAudio: the emulator has no sound\."),
        (lambda ale: ale.act("a"), TypeError, r"action='a': must be an integer\."),
        (lambda ale: ale.act(0, 0.5), EmulatorError, r"paddle_strength=0\.5: continuous actions are not supported"),
        (lambda ale: ale.setRAM(128, 0), RuntimeError, r"index=128: must be an integer from 0 to 127\."),
        (lambda ale: ale.setRAM(-1, 0), TypeError, r"index=-1: must be an integer from 0 to 127\."),
        (lambda ale: ale.setRAM(0, 256), TypeError, r"value=256: must be an integer from 0 to 255\."),
        (lambda ale: ale.setMode(9), RuntimeError, r"mode=9: pong has mode 0, 1 here"),
        (lambda ale: ale.setDifficulty(9), RuntimeError, r"difficulty=9: pong has difficulty 0, 1, 2, 3 here"),
        (lambda ale: ale.loadROM("pogn"), TypeError, r"game=pogn: unknown game\. Did you mean pong"),
        (lambda ale: ale.loadROM("/none/pong.bin"), EmulatorError, r"rom=/none/pong\.bin: there is no such file\."),
        (lambda ale: ale.loadROM(1), TypeError, r"rom=1: must be the name of a game or the path of a ROM\."),
    ],
)
def test_bad_arguments_are_refused_and_change_nothing(use: Any, kind: type[Exception], message: str) -> None:
    ale, _ = make_pair("pong")
    before = state_of(ale)
    with pytest.raises(kind, match=message):
        use(ale)
    assert state_of(ale) == before


@pytest.mark.parametrize("method", ["act", "lives", "reset_game", "getRAM", "getScreenRGB", "cloneState", "game_over"])
def test_without_a_rom_there_is_no_game(method: str) -> None:
    with pytest.raises(RuntimeError, match=r"ROM not set\. Call loadROM\(\) first\."):
        getattr(ALEInterface(), method)(*[0] * (method == "act"))
