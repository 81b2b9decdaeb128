"""Consoles played frame by frame: resets, masks, devices and threads."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import warp as wp
from atari_warp import ConsoleBatch, Emulator, Preprocessing, kernels, reset_pool
from atari_warp.rom_compiler import INTERPRETED
from atari_warp.threads import ConsoleThreads
from devices import DEVICES
from recording import record


@pytest.mark.parametrize("device", DEVICES)
def test_consoles_do_not_influence_each_other(device: str) -> None:
    draws = np.random.default_rng(0)
    actions = draws.integers(0, 18, (30, 3))
    together = record(Emulator("space_invaders", 3, device), actions)
    for i in range(3):
        alone = record(Emulator("space_invaders"), actions[:, i : i + 1])
        for all_of_them, one in zip(together, alone, strict=True):
            np.testing.assert_array_equal(all_of_them[i], one[0])


@pytest.mark.integration
@pytest.mark.skipif(sys.platform == "darwin", reason="Warp has no compiler for CUDA here")
def test_kernels_compile_for_cuda_without_a_gpu(tmp_path: Path) -> None:
    for kernel in (kernels.run_with(INTERPRETED), kernels.observe, reset_pool.match, reset_pool.swap):
        (made,) = wp.compile_aot_module(kernel.module, arch=90, module_dir=tmp_path / "made", use_ptx=False)
        assert kernel.key.encode() in Path(made).read_bytes()


@pytest.mark.parametrize("device", DEVICES[1:])
@pytest.mark.parametrize("agent", [False, True])
def test_a_step_can_be_captured_in_a_cuda_graph(device: str, agent: bool) -> None:
    def step(consoles: Any) -> None:
        if agent:
            consoles.step(actions)
        else:
            consoles.step(actions, 4)

    options = Preprocessing(max_num_frames_per_episode=100)  # short games, so that the reset pool is used
    captured, plain = (
        ConsoleBatch("breakout", 8, device, options) if agent else Emulator("breakout", 8, device) for _ in range(2)
    )
    actions = wp.array([k % 4 for k in range(8)], dtype=int, device=device)
    for one in (captured, plain):
        if agent:
            one.reset(range(8))
        step(one)
    with wp.ScopedCapture(device) as capture:
        step(captured)
    for _ in range(120):
        wp.capture_launch(capture.graph)
        step(plain)
    np.testing.assert_array_equal(captured.ram(), plain.ram())
    np.testing.assert_array_equal(captured.screen(), plain.screen())
    if agent:
        np.testing.assert_array_equal(captured.observations, plain.observations)
        np.testing.assert_array_equal(captured.read_outcomes(), plain.read_outcomes())


@pytest.mark.parametrize("game", ["tetris", "tic_tac_toe_3d", "trondead", "qbert", "breakout"])
def test_pictures_do_not_depend_on_which_frames_were_drawn(game: str) -> None:
    """Short frames show old pixels below their last line."""
    draws, skipping, drawing = np.random.default_rng(1), Emulator(game, 2), Emulator(game, 2)
    for k in range(60):
        if k == 30:
            skipping.reset([True, False])
            drawing.reset([True, False])
        actions = draws.integers(0, 18, 2)
        skipping.step(actions, frames=4, drawn=2)
        for _ in range(4):
            drawing.step(actions)
        np.testing.assert_array_equal(skipping.screen(), drawing.screen())
        np.testing.assert_array_equal(skipping.ram(), drawing.ram())


def test_threads_finish_an_interrupted_step_before_the_next_one() -> None:
    finished = threading.Event()

    def play(part: int) -> None:
        if part == 0:
            raise KeyboardInterrupt
        time.sleep(0.3)
        finished.set()

    with pytest.raises(KeyboardInterrupt):
        ConsoleThreads(consoles=4, threads=2).run(play)
    assert finished.is_set()


def test_nonzero_numbers_in_a_mask_reset_a_game() -> None:
    emulator = Emulator("pong", 2)
    first = emulator.registers()["frames"]
    emulator.step([0, 0], frames=20)
    emulator.reset([0.5, 0])
    assert (emulator.registers()["frames"] - first).tolist() == [0, 20]


def test_a_mask_resets_its_games_only() -> None:
    emulator = Emulator("breakout", 2)
    record(emulator, [[1, 1]] * 20)
    before = emulator.ram().copy()
    emulator.reset(wp.array([1, 0], dtype=int, device="cpu"))
    after = emulator.ram()
    np.testing.assert_array_equal(after[1], before[1])
    assert (after[0] != before[0]).any()
    assert emulator.lives.tolist()[0] == 5


def test_a_reset_keeps_the_rewards_of_other_games() -> None:
    emulator = Emulator("pong", 2)
    while not (rewards := emulator.reward.copy()).all():
        emulator.step([0, 0], frames=4)
    emulator.reset([True, False])
    np.testing.assert_array_equal(emulator.reward, rewards)


def test_a_game_that_is_over_does_not_change() -> None:
    emulator = Emulator("breakout")
    for _ in range(2000):
        emulator.step([1], frames=4)
        if emulator.terminated[0]:
            break
    over = emulator.ram().copy()
    emulator.step([1], frames=4)
    np.testing.assert_array_equal(emulator.ram(), over)
    assert emulator.lives.tolist() == [0] and emulator.reward.tolist() == [0]


@pytest.mark.parametrize("device", DEVICES)
def test_results_are_those_of_the_last_step(device: str) -> None:
    emulator, draws = Emulator("breakout", 3, device), np.random.default_rng(2)
    points = 0
    for _ in range(300):
        score = emulator.registers()["score"]
        emulator.step(torch.from_numpy(draws.integers(0, 4, 3)).to(device), frames=4)
        now = emulator.registers()
        expected = [now["score"] - score, now["over"], np.zeros(3, int), now["lives"]]
        found = [emulator.reward, emulator.terminated, emulator.truncated, emulator.lives]
        np.testing.assert_array_equal(found, expected)
        points += int(found[0].sum())
        if now["over"].any():
            state = emulator.save_state()
            emulator.reset(torch.from_numpy(now["over"]).to(device))
            assert not emulator.terminated.any()
            emulator.load_state(state)
            np.testing.assert_array_equal(emulator.terminated, now["over"])
            emulator.reset(emulator.terminated)
            assert not emulator.registers()["over"].any()
    assert points > 0


def test_numbers_that_are_not_actions_are_noop() -> None:
    emulator, idle = Emulator("pong", 3), Emulator("pong", 3)
    for _ in range(60):
        emulator.step(np.array([-(2**40), 2**32 + 3, 18]))
        idle.step([0, 0, 0])
    np.testing.assert_array_equal(emulator.ram(), idle.ram())


def test_numpy_numbers_and_torch_devices_are_accepted() -> None:
    options = Preprocessing(img_height=np.uint8(84), img_width=np.uint8(84), frameskip=np.int16(4))  # type: ignore[arg-type]
    batch = ConsoleBatch("pong", np.uint8(3), torch.device("cpu"), options, threads=np.int64(2))  # type: ignore[arg-type]
    assert (batch.num_envs, batch.observations.shape) == (3, (3, 4, 84, 84)) and options == Preprocessing()
    batch.reset([0, 1, 2])
    assert batch.render(np.int64(2)).shape == (210, 160, 3)  # type: ignore[arg-type]
