"""Arguments that are refused, each with a message that names the argument."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from atari_warp import ConsoleBatch, Emulator, EmulatorError, Preprocessing, find_game


def odd_rom(folder: Path) -> Path:
    path = folder / "odd.bin"
    path.write_bytes(bytes(3000))
    return path


def without_games() -> ConsoleBatch:
    """Consoles whose loaded state was saved before the first games started."""
    batch = ConsoleBatch("pong")
    batch.load_state(ConsoleBatch("pong").save_state())
    return batch


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda folder: Emulator("pogn"), r"game=pogn: unknown game\. Did you mean pong"),
        (
            lambda folder: Emulator(dataclasses.replace(find_game("pong"), cartridge="3F")),
            r"game=pong: cartridges of type 3F are not supported\.",
        ),
        (
            lambda folder: find_game("breakout").at(mode=3),
            r"mode=3: breakout has mode 0, 4, 8",
        ),
        (
            lambda folder: find_game("breakout").at(difficulty=2),
            r"difficulty=2: breakout has difficulty 0, 1 here\.",
        ),
        (lambda folder: Emulator("pong", device="tpu"), r"device=tpu: not available\. Choose one of cpu"),
        (
            lambda folder: Emulator("pong", 10**9),
            r"num_envs=1000000000: needs [\d,]+ MB of cpu memory, but [\d,]+ MB are available\. Use fewer environments",
        ),
        (lambda folder: Emulator("pong", seeds=[-1]), r"seeds=\[-1\]: must be integers from 0"),
        (lambda folder: Emulator("pong", seeds=[1.7]), r"seeds=\[1\.7\]: must be integers from 0"),
        (lambda folder: Emulator("pong", rom=folder / "none"), "none: cannot be read"),
        (
            lambda folder: Emulator("pong", rom=odd_rom(folder)),
            "has 3,000 bytes, but a cartridge of pong has 2,048 or 4,096",
        ),
    ],
)
def test_games_that_cannot_be_played_are_refused(make: Any, error: str, tmp_path: Path) -> None:
    with pytest.raises(EmulatorError, match=error):
        make(tmp_path)


@pytest.mark.parametrize(
    ("limit", "used", "cached"),
    [
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
        ("slurm/job_1/memory.max", "slurm/job_1/memory.current", "inactive_file"),
    ],
)
def test_memory_limits_of_containers_are_respected(
    limit: str, used: str, cached: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, job = tmp_path / "own", "0::/slurm/job_1/step_0" if "slurm" in limit else "4:memory:/\n0::/"
    own.write_text(f"{job}\n")
    for name, path in (("CGROUPS", tmp_path), ("OWN_CGROUPS", own)):
        monkeypatch.setattr(f"atari_warp.memory_limit.{name}", path)
    (tmp_path / limit).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / limit).write_text("max\n")
    (tmp_path / used).write_text("7000000000\n")
    (tmp_path / limit).with_name("memory.stat").write_text(f"anon 6950000000\n{cached} 50000000\n")
    Emulator("pong", 2)
    (tmp_path / limit).write_text("7050000000\n")
    Emulator("pong", 2)
    with pytest.raises(EmulatorError, match=r"num_envs=1000: needs 1\d\d MB of cpu memory, but 100 MB are available"):
        Emulator("pong", 1000)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"num_envs": 2.5}, r"num_envs=2\.5: must be an integer of at least 1\."),
        ({"num_envs": 0}, r"num_envs=0: must be an integer of at least 1\."),
        ({"threads": 0}, r"threads=0: must be an integer of at least 1\."),
        ({"reset_pool": -1}, r"reset_pool=-1: must be an integer of at least 0\."),
        ({"reset_pool": 1.5}, r"reset_pool=1\.5: must be an integer of at least 0\."),
    ],
)
def test_bad_counts_are_refused(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(EmulatorError, match=error):
        ConsoleBatch("pong", **arguments)


INTEGERS = r"must be integers with frames >= 1 and 0 <= drawn <= frames\."


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda emulator: emulator.step([0]), r"actions: has shape \(1,\), expected \(2,\)\."),
        (lambda emulator: emulator.step(0), r"actions: has shape \(\), expected \(2,\)\."),
        (lambda emulator: emulator.reset([True]), r"mask: has shape \(1,\), expected \(2,\)\."),
        (lambda emulator: emulator.step([0, 0], frames=0), f"frames=0, drawn=1: {INTEGERS}"),
        (lambda emulator: emulator.step([0, 0], frames=2, drawn=3), f"frames=2, drawn=3: {INTEGERS}"),
        (lambda emulator: emulator.step([0, 0], frames=2.5), rf"frames=2\.5, drawn=1: {INTEGERS}"),
        (lambda emulator: emulator.step([0, 0], frames=2**31), f"frames=2147483648, drawn=1: {INTEGERS}"),
        (lambda emulator: emulator.step(["a", "b"]), r"actions: has dtype <U1, expected integers\."),
        (lambda emulator: emulator.step([1.9, 0]), r"actions: has dtype float64, expected integers\."),
        (
            lambda emulator: emulator.load_state(Emulator("solaris", 2).save_state()),
            r"state: has 2 consoles with solaris, and is loaded into 2 with pong\.",
        ),
        (
            lambda emulator: emulator.load_state(Emulator("pong").save_state()),
            r"state: has 1 consoles with pong, and is loaded into 2 with pong\.",
        ),
        (
            lambda emulator: emulator.load_state(Emulator(find_game("pong").at(mode=1), 2).save_state()),
            "state: has 2 consoles with pong, mode 1, and is loaded into 2 with pong",
        ),
        (
            lambda emulator: emulator.load_state({**emulator.save_state(), "version": np.array("0")}),
            "state: has another ROM, preprocessing, version",
        ),
    ],
)
def test_bad_arguments_of_an_emulator_change_nothing(act: Any, error: str) -> None:
    emulator = Emulator("pong", 2)
    before = emulator.save_state()["consoles"]
    with pytest.raises(EmulatorError, match=error):
        act(emulator)
    np.testing.assert_array_equal(emulator.save_state()["consoles"], before)


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda batch: batch.step([0, 0]), r"no games have started\. Call reset\(\) or load_state\(\) first\."),
        (lambda batch: without_games().step([0]), "no games have started"),
        (lambda batch: batch.load_state(Emulator("pong", 2).save_state()), "state: was saved by an Emulator, or has"),
        (
            lambda batch: batch.load_state(
                ConsoleBatch("pong", 2, preprocessing=Preprocessing(frameskip=3)).save_state()
            ),
            "state: has another ROM, preprocessing, version",
        ),
        (lambda batch: batch.reset([1]), r"seeds: has shape \(1,\), expected \(2,\)\."),
        (lambda batch: batch.reset([-1, 0]), r"seeds=\[-1, 0\]: must be integers from 0 to 2\*\*64 - 1, on the host\."),
        (lambda batch: batch.reset(np.array([-1, 0])), r"seeds=\[-1  0\]: must be integers from 0"),
        (lambda batch: batch.reset([0.5, 1.7]), r"seeds=\[0\.5, 1\.7\]: must be integers from 0"),
    ],
)
def test_bad_arguments_of_a_batch_change_nothing(act: Any, error: str) -> None:
    batch = ConsoleBatch("pong", 2)
    before = batch.save_state()["consoles"]
    with pytest.raises(EmulatorError, match=error):
        act(batch)
    np.testing.assert_array_equal(batch.save_state()["consoles"], before)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"crop": (0, 84, 0)}, r"crop=\(0, 84, 0\): must be top, bottom, left, right with top < bottom"),
        ({"img_height": 0}, r"img_height=0: must be an integer from 1 to 4,096\."),
        ({"img_width": None}, r"img_width=None: must be an integer from 1 to 4,096\."),
        ({"start_order": "fire"}, r"start_order=fire: must be fire_then_noops or noops_then_fire\."),
        ({"frameskip": 2.5}, r"frameskip=2\.5: must be an integer from 1 to 1,048,576\."),
        ({"stack_num": 0}, r"stack_num=0: must be an integer from 1 to 1,024\."),
        ({"tap_frames": 4}, r"tap_frames=4: must be an integer from 0 to 3\."),
        ({"actions": np.array([0.5])}, r"actions=\[0\.5\]: must be action numbers from 0 to 17\."),
        ({"actions": (99,)}, r"actions=\(99,\): must be action numbers from 0 to 17\."),
        ({"repeat_action_probability": 1.5}, r"repeat_action_probability=1\.5: must be from 0 to 1\."),
    ],
)
def test_bad_preprocessing_is_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(EmulatorError, match=error):
        Preprocessing(**options)


def test_a_time_limit_before_the_first_frame_is_refused() -> None:
    batch = ConsoleBatch(
        "name_this_game", 2, preprocessing=Preprocessing(max_num_frames_per_episode=100, count_start_frames=True)
    )
    error = r"max_num_frames_per_episode=100: must be larger, as this game starts with frame 1\d\d\."
    with pytest.raises(EmulatorError, match=error):
        batch.reset([0, 1])
