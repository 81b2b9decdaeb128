"""Saved states of games in progress."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from atari_warp import ConsoleBatch, Emulator, EmulatorError, Preprocessing, kernels, known_games
from recording import record

OTHER_VERSION = "state: has another ROM, preprocessing, version of the emulator or of the game's rules."


@pytest.mark.parametrize(
    "options",
    [Preprocessing(), Preprocessing(img_height=None, img_width=None), Preprocessing(max_num_frames_per_episode=200)],
)
def test_a_saved_state_has_the_results_of_the_last_step(options: Preprocessing) -> None:
    games, other = (ConsoleBatch("breakout", 2, preprocessing=options) for _ in range(2))
    games.reset([1, 2])
    for _ in range(60):
        games.step([1, 2])
        if games.truncated.any():
            break
    other.load_state(games.save_state())
    for name in ("observations", "reward", "terminated", "truncated", "episode_start", "lives"):
        np.testing.assert_array_equal(getattr(other, name), getattr(games, name), name)
    assert games.truncated.any() == (options.max_num_frames_per_episode == 200)


def test_a_loaded_state_continues_bit_for_bit() -> None:
    draws = np.random.default_rng(0)
    begin, rest = draws.integers(0, 18, (2, 40, 2))
    emulator = Emulator("seaquest", 2)
    record(emulator, begin)
    saved = emulator.save_state()
    expected = record(emulator, rest)
    other = Emulator("seaquest", 2)
    other.load_state(saved)
    np.testing.assert_array_equal(record(other, rest), expected)


def test_equal_preprocessing_has_one_representation() -> None:
    """The version of a saved state is made of it."""
    crop, actions = [34, 194, 0, np.int64(160)], [0, np.int32(1)]
    given: Any = {"repeat_action_probability": 0, "use_fire_reset": 1, "crop": crop, "actions": actions}
    same = Preprocessing(use_fire_reset=True, crop=(34, 194, 0, 160), actions=(0, 1))
    assert repr(Preprocessing(**given)) == repr(same)


def test_a_state_of_another_cartridge_start_or_version_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pong = known_games()["pong"]
    saved = Emulator(pong).save_state()
    (tmp_path / "other.bin").write_bytes(bytes(2048))
    others = [
        Emulator(dataclasses.replace(pong, start=((3, 63), *pong.start[1:]))),
        Emulator(dataclasses.replace(pong, rules=known_games()["breakout"].rules)),
        Emulator(pong, rom=tmp_path / "other.bin"),
    ]
    for other in others:
        with pytest.raises(EmulatorError, match=OTHER_VERSION):
            other.load_state(saved)
    Emulator(pong).load_state(saved)
    monkeypatch.setattr(kernels, "hash_of_sources", lambda: b"of a newer version")
    with pytest.raises(EmulatorError, match=OTHER_VERSION):
        Emulator(pong).load_state(saved)
