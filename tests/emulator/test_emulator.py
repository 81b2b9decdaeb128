"""The emulator beside ALE, which is never told what the other does."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

pytest.importorskip("warp")

from dqnspeed.emulator import (
    Emulator,
    EmulatorError,
    Games,
    Preprocessing,
    derive,
    emulator,
    find,
    kernels,
    known_games,
    spares,
)
from dqnspeed.emulator import __main__ as bench
from dqnspeed.emulator.colors import shades
from dqnspeed.emulator.games import rom_of
from dqnspeed.emulator.preprocessing import PARTS
from dqnspeed.emulator.translation import NONE
from dqnspeed.emulator.verify import ale_action, ale_of, main, options_of, verify
from dqnspeed.envs.backends._warp_engine import WarpEngine
from dqnspeed.envs.frame_stack import FrameStack
from dqnspeed.envs.vector import VectorEnv

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]

# One of each cartridge, television, start and port, and games that others are unequal in if a rule is missing.
VARIED = {
    "pong": (2048, "paddles"),
    "breakout": (2048, "paddles that boot alike"),
    "space_invaders": (4096, "a player that is reset while it is drawn"),
    "seaquest": (4096, "collisions under the comb"),
    "air_raid": (4096, "colours of a PAL television"),
    "amidar": (4096, "a long VSYNC"),
    "journey_escape": (4096, "missile 0 as stars"),
    "qbert": (4096, "a picture from two frames"),
    "asteroids": (8192, "F8, no comb"),
    "montezuma_revenge": (8192, "E0"),
    "robotank": (8192, "FE, a ball that is reset after a movement"),
    "solaris": (16384, "F6"),
    "surround": (2048, "the right port, SELECT at the start"),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("game", VARIED)
def test_it_is_equal_to_ale_after_every_frame(game: str, device: str) -> None:
    result = verify(game, frames=1200 if device == "cpu" else 400, sequences=2, seed=3, device=device)
    assert result.refused is None and result.difference is None, result.line()
    assert result.frames > (800 if device == "cpu" else 300)


@pytest.mark.parametrize("game", ["hangman", "tic_tac_toe_3d"])  # a score that ends the game; an end that brings points
def test_it_is_equal_to_ale_until_a_game_ends(game: str) -> None:
    result = verify(game, frames=3000, sequences=1, seed=7)
    assert result.refused is None and result.difference is None, result.line()
    assert result.frames < 3000 and result.paid == result.ended == 1


def test_sequences_are_sought_that_make_points() -> None:
    result = verify("breakout", frames=400, sequences=2, seed=3, consoles=64)
    assert result.difference is None and result.paid >= 2, result.line()
    assert verify("pong", frames=8, sequences=3, consoles=2).frames == 16  # no more than there are
    assert "of adventure these are known" in (verify("adventure", frames=8, sequences=1, mode=1).refused or "")


@pytest.mark.parametrize("game", [game.name for game in known_games().values() if game.paddle is not None])
def test_a_paddle_that_is_turned_to_its_end_and_back_is_ales(game: str) -> None:
    emulator, ale = Emulator(game), ale_of(game)
    for frame in range(300):
        action = (4, 0, 3)[frame // 100]  # LEFT, then nothing, then RIGHT
        emulator.step([action])
        ale.act(ale_action(action))
        np.testing.assert_array_equal(emulator.ram().numpy()[0], ale.getRAM(), err_msg=str(frame))


@pytest.mark.slow
def test_games_know_the_actions_that_ale_takes() -> None:
    for game in known_games().values():
        ale = ale_of(game.name)
        assert list(game.minimal) == [action.value for action in ale.getMinimalActionSet()], game.name
        assert list(game.legal) == [action.value for action in ale.getLegalActionSet()], game.name


@pytest.mark.parametrize("game", ["lost_luggage", "skiing"])
def test_an_action_that_a_game_does_not_take_is_noop(game: str) -> None:
    assert find(game).legal == (0, 2, 3, 4, 5, 6, 7, 8, 9)
    emulator, ale, draws = Emulator(game), ale_of(game), np.random.default_rng(0)
    agent, other = (Games(game, preprocessing=Preprocessing(actions=actions)) for actions in ((0, 1, 17), (0,)))
    for games in (agent, other):
        games.begin([1])
    for frame in range(200):
        action = int(draws.choice([1, 10, 11, 12, 13, 14, 15, 16, 17])) if frame % 8 < 4 else int(draws.integers(18))
        emulator.step([action])
        ale.act(ale_action(action))
        agent.act([frame % 3])
        other.act([0])
        np.testing.assert_array_equal(emulator.ram().numpy()[0], ale.getRAM(), err_msg=str(frame))
        np.testing.assert_array_equal(agent.ram().numpy(), other.ram().numpy())


def test_an_agent_has_the_actions_that_its_game_takes_unless_others_are_named() -> None:
    games = Games("skiing"), Games("skiing", preprocessing=Preprocessing(actions=(0, 2, 3, 4, 5, 6, 7, 8, 9)))
    state = [each.save_state()["version"] for each in games]
    assert state[0] == state[1] != Games("pong").save_state()["version"]


def test_lives_at_the_end_are_ales() -> None:
    for game, byte, value, lives in (("adventure", 96, 2, 1), ("breakout", 57, 0, 0)):
        emulator, ale = Emulator(game), ale_of(game)
        ale.setRAM(byte, value)
        emulator.ram().numpy()[0, byte] = value
        emulator.step([0])
        ale.act(ale_action(0))
        assert ale.game_over() and emulator.terminated.numpy()[0]
        assert ale.lives() == emulator.lives.numpy()[0] == lives, game


def test_every_game_starts_and_plays_by_its_rules() -> None:
    games = known_games()
    assert len(games) == 104
    for game in games.values():
        emulator = Emulator(game, 2)
        emulator.step([0, 1], frames=4)
        assert (emulator.registers()["frames"] == game.frames + 4).all(), game.name
        assert emulator.screen().shape == (2, game.rows, 160) and emulator.ram().numpy().any(), game.name
        assert game.rules.terms and not emulator.terminated.numpy().any(), game.name
        assert (emulator.lives.numpy() >= 0).all(), game.name


FRAME = bytes.fromhex("A9 02 85 02 85 00 85 02 85 02 A9 00 85 00")  # the code of a VSYNC


@pytest.mark.slow
@pytest.mark.parametrize(
    ("game", "mode", "difficulty"),
    [
        ("breakout", 8, 1),
        ("space_invaders", 5, 0),
        ("boxing", None, 3),
        ("alien", 3, 2),
        ("berzerk", 17, 0),  # SELECT after a while of nothing
        ("lost_luggage", 1, 1),  # and less often than for the usual mode
        ("double_dunk", 13, 0),  # a menu
        ("video_cube", 1201, 1),  # RIGHT, for as long as it takes to come to a cube
        ("casino", 3, 0),  # without money, and not over
        ("tic_tac_toe_3d", 3, 2),  # less often than at the usual difficulty
    ],
)
def test_other_modes_and_difficulties_are_equal_to_ales(game: str, mode: int | None, difficulty: int) -> None:
    result = verify(game, frames=300, sequences=2, seed=3, mode=mode, difficulty=difficulty)
    assert result.refused is None and result.difference is None, result.line()
    if game not in VARIED:  # which are verified above
        usual = verify(game, frames=300, sequences=2, seed=3)
        assert usual.refused is None and usual.difference is None, usual.line()


def waiting_program() -> bytes:
    """A ROM that waits for the timer in many ways, and keeps what it is after each."""
    loops = [
        "AD 84 02 D0 FB",  # LDA INTIM, BNE
        "AE 84 02 D0 FB",  # LDX
        "AC 84 02 10 FB",  # LDY, BPL
        "AD 94 02 D0 FB",  # another of its addresses
        "AD 85 02 10 FB",  # INSTAT
        "2C 85 02 10 FB",  # BIT
        "A9 00 F0 03 AD 84 02 F0 FB",  # into the loop by its end, with flags that are not the timer's
        "18 90 03 AD 84 02 B0 FB",  # that the timer does not set
        "A2 03 AD 84 02 CA D0 FA",  # a loop of three
    ]
    code, cell = bytearray.fromhex("78 D8 A2 FF 9A"), 0x80
    begin = len(code)
    code += FRAME
    for timer in (0x95, 0x96):  # of 8 and 64 cycles
        for loop in map(bytes.fromhex, loops):
            for value in (9, 20):
                code += bytes([0xA9, value, 0x8D, timer, 2]) + loop
                code += bytes([0xAD, 0x84, 2, 0x85, cell])
                cell += 1
    for value in (5, 30):  # across the end of a page
        code += bytes(0xEA for _ in range(-(len(code) + 9) % 256))
        code += bytes([0xA9, value, 0x8D, 0x95, 2]) + bytes.fromhex(loops[0])
        code += bytes([0xAD, 0x84, 2, 0x85, cell])
        cell += 1
    code += bytes.fromhex("A2 38 B5 00 85 F9")  # INPT0 by an index
    code += bytes.fromhex("A2 C8 85 02 CA D0 FB 4C") + bytes([begin, 0xF0])
    rom = bytearray(code.ljust(4096, b"\xea"))
    rom[0xFFC:] = bytes.fromhex("00F000F0")
    return bytes(rom)


def test_waiting_ends_when_the_timer_says(tmp_path: Path) -> None:
    assert_same_memory(waiting_program(), tmp_path)


def assert_same_memory(program: bytes, folder: Path) -> None:
    from ale_py import ALEInterface, LoggerMode

    ALEInterface.setLoggerMode(LoggerMode.Error)
    rom = folder / "seaquest.bin"  # a name that ALE knows
    rom.write_bytes(program)
    ale = ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(str(rom))
    ours = Emulator("seaquest", rom=rom).ram().numpy()[0]
    np.testing.assert_array_equal(ours, ale.getRAM())


def played(emulator: Emulator, actions: Sequence[Sequence[int]]) -> list[np.ndarray]:
    seen = []
    for action in actions:
        emulator.step(action, frames=4, seen=2)
        seen.append(np.concatenate([emulator.ram().numpy(), emulator.screen().reshape(emulator.num_envs, -1)], axis=1))
    return seen


@pytest.mark.parametrize("device", DEVICES)
def test_consoles_side_by_side_do_what_each_does_alone(device: str) -> None:
    draws = np.random.default_rng(0)
    actions = draws.integers(0, 18, (30, 3))
    together = played(Emulator("space_invaders", 3, device), actions)
    for i in range(3):
        alone = played(Emulator("space_invaders"), actions[:, i : i + 1])
        for all_of_them, one in zip(together, alone, strict=True):
            np.testing.assert_array_equal(all_of_them[i], one[0])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "darwin", reason="Warp has no compiler for CUDA here")
def test_the_same_source_compiles_for_cuda_also_without_a_gpu(tmp_path: Path) -> None:
    import warp as wp

    for kernel in (kernels.run_with(NONE), kernels.observe, spares.match, spares.exchange):
        (made,) = wp.compile_aot_module(kernel.module, arch=90, module_dir=tmp_path / "made", use_ptx=False)
        assert kernel.key.encode() in Path(made).read_bytes()  # assembled


@pytest.mark.cuda
@pytest.mark.parametrize("agent", [False, True])
def test_a_step_can_be_captured_in_a_graph(agent: bool) -> None:
    import warp as wp

    def step(games: Any) -> None:
        if agent:
            games.act(actions)
        else:
            games.step(actions, 4)

    stages = Preprocessing(max_episode_frames=100)  # so that agents are given games that are ready
    captured, plain = (
        Games("breakout", 8, "cuda", stages) if agent else Emulator("breakout", 8, "cuda") for _ in range(2)
    )
    actions = wp.array([k % 4 for k in range(8)], dtype=int, device="cuda")
    for one in (captured, plain):
        if agent:
            one.begin(range(8))
        step(one)
    with wp.ScopedCapture("cuda") as capture:
        step(captured)
    for _ in range(120):
        wp.capture_launch(capture.graph)
        step(plain)
    np.testing.assert_array_equal(captured.ram().numpy(), plain.ram().numpy())
    np.testing.assert_array_equal(captured.screen(), plain.screen())
    if agent:
        np.testing.assert_array_equal(captured.observations.numpy(), plain.observations.numpy())
        np.testing.assert_array_equal(captured.outcome(), plain.outcome())


@pytest.mark.parametrize("game", ["tetris", "tic_tac_toe_3d", "trondead", "qbert", "breakout"])
def test_pictures_are_whole_though_others_were_not_drawn(game: str) -> None:
    """Also those of short frames, which show below them what was drawn there before."""
    draws, hasty, patient = np.random.default_rng(1), Emulator(game, 2), Emulator(game, 2)
    for k in range(60):
        if k == 30:
            hasty.reset([True, False])
            patient.reset([True, False])
        actions = draws.integers(0, 18, 2)
        hasty.step(actions, frames=4, seen=2)
        for _ in range(4):
            patient.step(actions)
        np.testing.assert_array_equal(hasty.screen(), patient.screen())
        np.testing.assert_array_equal(hasty.ram().numpy(), patient.ram().numpy())


@pytest.mark.parametrize("device", DEVICES)
def test_games_start_and_stick_at_random_but_by_their_seeds(device: str) -> None:
    stages = Preprocessing(sticky_actions=0.25, fire=True, max_episode_frames=400)
    games = [Games("breakout", 6, device, stages, threads=threads, spares=0) for threads in (1, 3)]
    seeds, frames = [1, 2, 3, 4, 5, 1], list[np.ndarray]()
    for each in games:
        each.begin(seeds)
        started, draws = each.registers()["frames"], np.random.default_rng(0)
        assert started.min() >= 2 and started.max() <= 31 and len(set(started)) > 2
        for _ in range(120):
            each.act(draws.integers(0, 4, 1).repeat(6).astype(np.int32))
        frames.append(each.observations.numpy().copy())
    np.testing.assert_array_equal(*frames)
    np.testing.assert_array_equal(frames[0][0], frames[0][5])  # of the same seed
    assert len({frame.tobytes() for frame in frames[0]}) > 2


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "stages",
    [
        {"episodic_life": True, "clip_reward": True, "stack": 4, "fire": True},
        {"stack": 3, "grayscale": False, "size": None, "clip_reward": True, "sticky_actions": 0.25},
        {"episodic_life": True, "stack": 2, "frame_skip": 3, "grayscale": False, "tap": 1},
        {"episodic_life": True, "stack": 1, "fire": True, "sticky_actions": 0.5, "clip_reward": True},
    ],
)
def test_lives_rewards_and_stacks_of_the_device_are_those_of_the_environments(
    device: str, stages: dict[str, Any]
) -> None:
    agents, backend = (
        Games("breakout", 5, device, Preprocessing(**of, actions=(0, 1, 3, 4), max_episode_frames=650))
        for of in (stages, {k: v for k, v in stages.items() if k not in ("episodic_life", "clip_reward", "stack")})
    )
    env = VectorEnv(
        WarpEngine(backend, ["NOOP", "FIRE", "RIGHT", "LEFT"], overlap=False),
        clip_reward=stages.get("clip_reward", False),
        episodic_life=stages.get("episodic_life", False),
        life_action=~int(stages.get("fire", False)),
    )
    draws, seeds = np.random.default_rng(2), list(range(5))
    frames = torch.as_tensor(env.reset(seeds)).cpu().numpy().copy()
    stack = FrameStack(5, stages["stack"], frames.shape[1:], frames.dtype)
    stack.push(frames, np.ones(5, bool))
    agents.begin(seeds)
    np.testing.assert_array_equal(agents.observations.numpy(), stack.observations)
    assert agents.starts.numpy().all()
    seen = {"reward": 0, "terminated": 0, "truncated": 0, "starts": 0}
    for k in range(500):
        actions = draws.integers(0, 4, 5)
        env.send(actions)
        step = env.recv()
        stack.push(torch.as_tensor(step.frames).cpu().numpy(), step.first)
        agents.act(actions)
        for name, expected in (("reward", step.rewards), ("starts", step.first), ("lives", step.raw.lives),
                               ("terminated", step.terminated), ("truncated", step.truncated)):  # fmt: skip
            np.testing.assert_array_equal(getattr(agents, name).numpy(), expected, name)
            seen[name] = seen.get(name, 0) + int(np.count_nonzero(expected))
        np.testing.assert_array_equal(agents.observations.numpy(), stack.observations)
        if k == 250:
            saved, agents = agents.save_state(), Games("breakout", 5, device, agents._preprocessing)
            agents.load_state(saved)
    assert all(seen.values()), seen


def test_a_life_that_is_lost_in_the_step_of_the_frame_limit_is_terminated() -> None:
    """FIRE, then RIGHT: Breakout takes a life in its frame 97, in the step of frames 97 to 100."""
    for limit, ends in {96: (0, 1), 97: (1, 1), 100: (1, 1), 101: (1, 0)}.items():
        stages = Preprocessing(noop_max=0, episodic_life=True, max_episode_frames=limit, actions=(0, 1, 3, 4))
        games = Games("breakout", 1, preprocessing=stages)
        games.begin([1])
        for action in [1, *[2] * (24 if limit > 96 else 23)]:
            games.act(np.array([action]))
        assert (games.terminated.numpy()[0], games.truncated.numpy()[0]) == ends, limit
        games.act(np.array([2]))
        assert games.starts.numpy()[0] and not games.terminated.numpy()[0] and not games.truncated.numpy()[0]


def test_rows_that_a_crop_leaves_out_are_drawn_only_for_who_asks() -> None:
    crop = (34, 194, 0, 160)
    games = [Games("pong", 2, preprocessing=Preprocessing(crop=crop, size=48, whole=whole)) for whole in (False, True)]
    draws = np.random.default_rng(0)
    for each in games:
        each.begin([1, 2])
    for _ in range(100):
        actions = draws.integers(0, 6, 2)
        for each in games:
            each.act(actions)
        np.testing.assert_array_equal(*[each.observations.numpy() for each in games])
    part, whole = (each.rgb() for each in games)
    np.testing.assert_array_equal(part[:, 34:194], whole[:, 34:194])
    assert not part[:, :34].any() and not part[:, 194:].any()
    assert whole[:, :34].any() and whole[:, 194:].any()


@pytest.mark.parametrize("grayscale", [True, False])
@pytest.mark.parametrize(
    ("crop", "size"),
    [
        (None, 84), (None, 10), ((34, 194, 0, 160), 84), ((34, 194, 0, 160), 80), ((34, 194, 0, 160), 32),
        ((34, 194, 0, 160), 16), ((30, 180, 5, 155), 25), ((10, 100, 20, 50), 30), ((0, 200, 7, 107), 50),
        ((34, 194, 16, 155), 64), ((0, 210, 63, 143), 8), ((5, 120, 100, 160), 60),
    ],
)  # fmt: skip
def test_whatever_is_on_a_screen_is_resized_as_opencv_does_it(
    crop: tuple[int, int, int, int] | None, size: int, grayscale: bool
) -> None:
    """Halves too, which pictures of games seldom have; a little that has changed; and in parts, as on a GPU."""
    stages = Preprocessing(frame_skip=1, noop_max=0, crop=crop, size=size, grayscale=grayscale)
    games, draws = Games("pong", 1, preprocessing=stages), np.random.default_rng(size)
    games.begin([0])

    def is_resized() -> None:
        games._observations[0].launch()
        pictures = shades()[games.screen()] if grayscale else games.rgb()
        top, bottom, left, right = crop or (0, *pictures.shape[1:2], 0, pictures.shape[2])
        there = cv2.resize(pictures[0, top:bottom, left:right], (size, size), interpolation=cv2.INTER_AREA)
        np.testing.assert_array_equal(games.observations.numpy()[0].transpose(1, 2, 0).squeeze(), there)

    for parts in (1, PARTS):
        games._observations[0].set_dim((1, parts))
        games._observations[0].set_param_by_name("parts", parts)
        for colors in (256, 4, 2, 1):
            games.screens.assign(draws.integers(0, colors, games.screens.shape, np.uint8))
            is_resized()
        for _ in range(40):  # of a picture of one colour, some pixels after others
            for _ in range(draws.integers(1, 8)):
                row, column = draws.integers(games.screens.shape[2]), draws.integers(160)
                games.screens.numpy()[0, :, row, column : column + draws.integers(1, 20)] = draws.integers(256)
            is_resized()


def test_a_picture_of_too_many_rows_for_the_size_is_refused() -> None:
    tall = dataclasses.replace(find("pong"), rows=400)
    with pytest.raises(EmulatorError, match="size=8: too little for a picture of 400 rows"):
        Games(tall, 1, preprocessing=Preprocessing(size=8))


def test_numbers_may_be_numpys_and_devices_torchs() -> None:
    stages = Preprocessing(size=np.uint8(84), frame_skip=np.int16(4))  # type: ignore[arg-type]
    games = Games("pong", np.uint8(3), torch.device("cpu"), stages, threads=np.int64(2))  # type: ignore[arg-type]
    assert (games.num_envs, games.observations.shape) == (3, (3, 1, 84, 84)) and stages == Preprocessing()
    games.begin([0, 1, 2])
    assert games.picture(np.int64(2)).shape == (210, 160, 3)  # type: ignore[arg-type]


def test_a_step_that_was_interrupted_is_over_before_the_next_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    emulator, alone = Emulator("pong", 4, threads=2), Emulator("pong", 4)
    play, over = emulator._after, threading.Event()

    def after(order: int, part: int) -> None:
        if part:
            time.sleep(0.3)
            over.set()
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr(emulator, "_after", after)
    with pytest.raises(KeyboardInterrupt):
        emulator.step([2] * 4)
    assert over.is_set()
    monkeypatch.setattr(emulator, "_after", play)
    emulator.close()
    emulator.step([3] * 4)  # by one thread then
    for action in (2, 3):
        alone.step([action] * 4)
    np.testing.assert_array_equal(emulator.ram().numpy(), alone.ram().numpy())


def test_whatever_is_not_0_in_a_mask_starts_a_game() -> None:
    emulator = Emulator("pong", 2)
    begun = emulator.registers()["frames"]
    emulator.step([0, 0], frames=20)
    emulator.reset([0.5, 0])
    assert (emulator.registers()["frames"] - begun).tolist() == [0, 20]


@pytest.mark.parametrize("stages", [Preprocessing(), Preprocessing(size=None), Preprocessing(max_episode_frames=200)])
def test_a_saved_state_has_what_the_last_step_brought(stages: Preprocessing) -> None:
    games, other = (Games("breakout", 2, preprocessing=stages) for _ in range(2))
    games.begin([1, 2])
    for _ in range(60):
        games.act([1, 2])
        if games.truncated.numpy().any():
            break
    other.load_state(games.save_state())
    for name in ("observations", "reward", "terminated", "truncated", "starts", "outcomes"):
        np.testing.assert_array_equal(getattr(other, name).numpy(), getattr(games, name).numpy(), name)
    assert games.truncated.numpy().any() == (stages.max_episode_frames == 200)


def test_a_saved_state_goes_on_bit_for_bit() -> None:
    draws = np.random.default_rng(0)
    begin, rest = draws.integers(0, 18, (2, 40, 2))
    emulator = Emulator("seaquest", 2)
    played(emulator, begin)
    saved = emulator.save_state()
    expected = played(emulator, rest)
    other = Emulator("seaquest", 2)
    other.load_state(saved)
    np.testing.assert_array_equal(played(other, rest), expected)


@pytest.mark.parametrize(("game", "fire"), [("breakout", True), ("skiing", False)])  # where nothing costs points
def test_frames_of_nothing_at_a_start_are_ales_and_what_they_bring_is_not_lost(game: str, fire: bool) -> None:
    counts = set[int]()
    for seed in range(4):
        stages = Preprocessing(noop_max=30, fire=fire, actions=(0, 3))
        games, ale = Games(game, 1, preprocessing=stages), ale_of(game)
        first = ale.getEpisodeFrameNumber()
        games.begin([seed])
        noops = int(games.registers()["frames"][0]) - first - fire
        counts.add(noops)
        pressed = [0] * noops + [1] * fire
        owed = sum(ale.act(ale_action(action)) for action in pressed)
        np.testing.assert_array_equal(games.ram().numpy()[0], ale.getRAM())
        np.testing.assert_array_equal(games.screen()[0], ale.getScreen())
        games.act([1])
        assert games.reward.numpy().tolist() == [owed + sum(ale.act(ale_action(3)) for _ in range(4))]
        np.testing.assert_array_equal(games.ram().numpy()[0], ale.getRAM())
        assert game != "skiing" or owed < 0
    assert len(counts) > 2 and counts <= set(range(1, 31))


def test_a_preprocessing_that_is_written_in_another_way_is_the_same() -> None:
    given: Any = {"sticky_actions": 0, "fire": 1, "crop": [34, 194, 0, np.int64(160)], "actions": [0, np.int32(1)]}
    same = Preprocessing(fire=True, crop=(34, 194, 0, 160), actions=(0, 1))
    assert repr(Preprocessing(**given)) == repr(same)  # of which a saved state's version is


def test_a_state_is_of_one_cartridge_one_start_and_one_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pong = known_games()["pong"]
    saved = Emulator(pong).save_state()
    (tmp_path / "other.bin").write_bytes(bytes(2048))
    others = {
        "start": lambda: Emulator(dataclasses.replace(pong, start=((3, 63), *pong.start[1:]))),
        "rules": lambda: Emulator(dataclasses.replace(pong, rules=known_games()["breakout"].rules)),
        "cartridge": lambda: Emulator(pong, rom=tmp_path / "other.bin"),
    }
    for other in others.values():
        with pytest.raises(EmulatorError, match="state: is of another ROM or preprocessing, or another version of"):
            other().load_state(saved)
    Emulator(pong).load_state(saved)
    monkeypatch.setattr(kernels, "hash_of_sources", lambda: b"of a newer version")
    with pytest.raises(EmulatorError, match="state: is of another ROM or preprocessing, or another version"):
        Emulator(pong).load_state(saved)


@pytest.mark.parametrize("device", DEVICES)
def test_what_a_step_brought_stays_on_the_device_for_torch(device: str) -> None:
    import warp as wp

    emulator, draws = Emulator("breakout", 3, device), np.random.default_rng(2)
    found, points = wp.to_torch(emulator.outcomes), 0
    for _ in range(300):
        score = emulator.registers()["score"]
        emulator.step(torch.from_numpy(draws.integers(0, 4, 3)).to(device), frames=4)
        now = emulator.registers()  # of the consoles themselves
        expected = [now["score"] - score, now["over"], np.zeros(3, int), now["lives"]]
        np.testing.assert_array_equal(found.cpu().numpy().T, expected)
        each = [emulator.reward, emulator.terminated, emulator.truncated, emulator.lives]
        np.testing.assert_array_equal([array.numpy() for array in each], expected)
        points += int(found[:, 0].sum())
        if now["over"].any():
            state = emulator.save_state()
            emulator.reset(torch.from_numpy(now["over"]).to(device))
            assert not found[:, 1].any()
            emulator.load_state(state)
            np.testing.assert_array_equal(found[:, 1].cpu().numpy(), now["over"])
            emulator.reset(emulator.terminated)
            assert not emulator.registers()["over"].any()
    assert points > 0


def test_only_the_games_of_a_mask_start_anew() -> None:
    import warp as wp

    emulator = Emulator("breakout", 2)
    played(emulator, [[1, 1]] * 20)
    before = emulator.ram().numpy().copy()
    emulator.reset(wp.array([1, 0], dtype=int, device="cpu"))
    after = emulator.ram().numpy()
    np.testing.assert_array_equal(after[1], before[1])
    assert (after[0] != before[0]).any()
    assert emulator.lives.numpy().tolist()[0] == 5


def test_a_game_at_another_mode_is_that_from_its_first_frame_on() -> None:
    emulator, again = (Emulator(find("pong").at(mode=1, difficulty=1)) for _ in range(2))
    assert emulator.screen().any() and emulator.reward.numpy().tolist() == [0]
    usual = Emulator("pong")
    usual.step([0])
    emulator.step([0])
    assert (emulator.ram().numpy() != usual.ram().numpy()).any()
    again.reset()  # starts it a second time
    assert emulator.registers()["frames"] == again.registers()["frames"] + 1


def test_a_game_that_is_over_stands_still() -> None:
    emulator = Emulator("breakout")
    for _ in range(2000):
        emulator.step([1], frames=4)
        if emulator.terminated.numpy()[0]:
            break
    over = emulator.ram().numpy().copy()
    emulator.step([1], frames=4)
    np.testing.assert_array_equal(emulator.ram().numpy(), over)
    assert emulator.lives.numpy().tolist() == [0] and emulator.reward.numpy().tolist() == [0]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: Emulator("pogn"), "game=pogn: no game that is known; nearest: pong"),
        (
            lambda folder: Emulator(dataclasses.replace(find("pong"), cartridge="3F")),
            r"game=pong: its cartridge \(3F\) is not supported\.",
        ),
        (lambda folder: find("breakout").at(mode=3), "mode=3: of breakout these are known: 0, 4, 8"),
        (lambda folder: find("breakout").at(difficulty=2), r"difficulty=2: of breakout these are known: 0, 1\."),
        (lambda folder: Emulator("pong", device="tpu"), "device=tpu: is not here; there is cpu"),
        (
            lambda folder: Emulator("pong", 10**9),
            r"num_envs=1000000000: needs [\d,]+ MB of cpu's memory, of which [\d,]+ MB may",
        ),
        (lambda folder: Emulator("pong", rom=folder / "none"), "none: cannot be read"),
        (lambda folder: Emulator("pong", rom=odd(folder)), "has 3,000 bytes, and the cartridge of pong 2,048 or 4,096"),
    ],
)
def test_what_cannot_be_played_is_one_sentence(make: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(EmulatorError, match=said):
        make(tmp_path)


@pytest.mark.parametrize(
    ("limit", "used", "cached"),
    [
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
        ("slurm/job_1/memory.max", "slurm/job_1/memory.current", "inactive_file"),
    ],
)
def test_a_containers_memory_is_no_more_than_it_may_use(
    limit: str, used: str, cached: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, job = tmp_path / "own", "0::/slurm/job_1/step_0" if "slurm" in limit else "4:memory:/\n0::/"
    own.write_text(f"{job}\n")
    for name, path in (("CGROUPS", tmp_path), ("OWN_CGROUPS", own)):
        monkeypatch.setattr(f"dqnspeed.emulator.memory.{name}", path)
    (tmp_path / limit).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / limit).write_text("max\n")
    (tmp_path / used).write_text("7000000000\n")
    (tmp_path / limit).with_name("memory.stat").write_text(f"anon 6950000000\n{cached} 50000000\n")
    Emulator("pong", 2)
    (tmp_path / limit).write_text("7050000000\n")
    Emulator("pong", 2)
    with pytest.raises(EmulatorError, match=r"num_envs=1000: needs 1\d\d MB of cpu's memory, of which 100 MB may"):
        Emulator("pong", 1000)


def test_ctrl_c_and_a_reader_that_has_gone_are_no_traceback(tmp_path: Path) -> None:
    for how, status in (("raise KeyboardInterrupt", 130), ("print('x' * 10**6)", 141)):
        script = f"from dqnspeed.emulator.verify import ends\ndef main():\n    {how}\nends(main)"
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as found:
            assert found.stdout is not None and found.stderr is not None
            found.stdout.close()
            assert (found.stderr.read(), found.wait()) == (b"", status)


def test_a_rom_that_is_not_ale_pys_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path / "none"))
    missing = "rom=pong: cannot be read (ROM directory "
    assert main(["game=pong", "frames=10"]) == 1 and missing in capsys.readouterr().out
    for command, more in ((main, ["mode=all"]), (derive.main, [])):
        assert command(["game=pong", *more]) == 2 and capsys.readouterr().err.startswith(missing)
    (tmp_path / "pong.bin").write_bytes(bytes(2048))
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    assert main(["game=pong", "frames=10"]) == 1 and "rom=pong: cannot be read (The hash of" in capsys.readouterr().out


def test_without_the_extra_one_sentence_says_what_brings_it(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['warp'] = None\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for module in ("dqnspeed.emulator", "dqnspeed.emulator.verify"):
        command = [sys.executable, "-m", module, "game=pong"]
        found = subprocess.run(command, env=environment, capture_output=True, text=True)
        said = "dqnspeed.emulator: needs Warp; pip install 'dqnspeed[emulator]' brings it.\n"
        assert (found.returncode, found.stderr) == (1, said)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda emulator: emulator.step([0]), r"actions: has the shape \(1,\), and takes \(2,\)\."),
        (lambda emulator: emulator.step(0), r"actions: has the shape \(\), and takes \(2,\)\."),
        (lambda emulator: emulator.reset([True]), r"mask: has the shape \(1,\), and takes \(2,\)\."),
        (lambda emulator: emulator.step([0, 0], frames=0), "frames=0, seen=1: whole numbers, and of at least"),
        (lambda emulator: emulator.step([0, 0], frames=2, seen=3), "frames=2, seen=3: whole numbers, and of at least"),
        (
            lambda emulator: emulator.load_state(Emulator("solaris", 2).save_state()),
            "state: is of 2 consoles with sol",
        ),
        (lambda emulator: emulator.load_state(Emulator("pong").save_state()), "state: is of 1 consoles with pong"),
        (
            lambda emulator: emulator.load_state(Emulator(find("pong").at(mode=1), 2).save_state()),
            "state: is of 2 consoles with pong, mode 1, and these are 2 with pong",
        ),
        (
            lambda emulator: emulator.load_state({**emulator.save_state(), "version": np.array("0")}),
            "state: is of another ROM or preprocessing, or another version of the emulator or the game's rules",
        ),
        (lambda emulator: Games("pong", 2).act([0, 0]), r"act: begin\(\) comes first, or load_state\(\)"),
        (lambda emulator: Games("pong", 2).load_state(emulator.save_state()), "state: is of an Emulator, or of"),
        (
            lambda emulator: Games("pong").load_state(
                Games("pong", preprocessing=Preprocessing(frame_skip=3)).save_state()
            ),
            "state: is of another ROM or preprocessing, or another version",
        ),
        (lambda emulator: not_begun().act([0]), r"act: begin\(\) comes first, or load_state\(\)"),
        (lambda emulator: Preprocessing(crop=(34, 94, 0, 160)), r"crop=\(34, 94, 0, 160\): is smaller than size=84"),
        (lambda emulator: Games("pong", 2).begin([1]), r"seeds: has the shape \(1,\), and takes \(2,\)\."),
        (lambda emulator: Games("pong", 2).reset(), "reset: games with an agent start with begin"),
        (lambda emulator: Games("pong", 2).step([0, 0]), r"step: games with an agent are played by act\(\)"),
        (lambda emulator: Games("pong", 2).begin([-1, 0]), r"seeds=\[-1, 0\]: takes whole numbers from 0 to"),
        (lambda emulator: Games("pong", 2).begin(np.array([-1, 0])), r"seeds=\[-1  0\]: takes whole numbers from 0"),
        (lambda emulator: Games("pong", 2).begin([0.5, 1.7]), r"seeds=\[0\.5, 1\.7\]: takes whole numbers from 0"),
        (lambda emulator: emulator.step(["a", "b"]), "actions: is of <U1, and takes whole numbers"),
        (lambda emulator: emulator.step([1.9, 0]), "actions: is of float64, and takes whole numbers"),
        (lambda emulator: Emulator("pong", 2.5), r"num_envs=2\.5: takes a whole number, at least 1"),
        (lambda emulator: Preprocessing(crop=(0, 84, 0)), r"crop=\(0, 84, 0\): takes the first row and"),
        (
            lambda emulator: Games("name_this_game", 2, preprocessing=Preprocessing(max_episode_frames=100)).begin(
                [0, 1]
            ),
            "max_episode_frames=100: this game begins with frame 1[0-9][0-9]; give more",
        ),
        (lambda emulator: emulator.step([0, 0], frames=2.5), r"frames=2\.5, seen=1: whole numbers, and of at least"),
        (
            lambda emulator: emulator.step([0, 0], frames=2**31),
            "frames=2147483648, seen=1: whole numbers, and of at least",
        ),
        (lambda emulator: Preprocessing(size=200), "size=200: takes a whole number from 8 to 160"),
        (lambda emulator: Preprocessing(frame_skip=2.5), r"frame_skip=2\.5: takes a whole number from 1 to 1,048,576"),
        (lambda emulator: Preprocessing(stack=0), "stack=0: takes a whole number from 1 to 1,024"),
        (lambda emulator: Preprocessing(tap=4), "tap=4: takes a whole number from 0 to 3"),
        (lambda emulator: Preprocessing(actions=np.array([0.5])), r"actions=\[0\.5\]: takes numbers of actions"),
        (lambda emulator: Preprocessing(actions=(99,)), r"actions=\(99,\): takes numbers of actions, from 0 to 17"),
        (lambda emulator: Preprocessing(sticky_actions=1), "sticky_actions=1: takes a number from 0, and less than 1"),
        (lambda emulator: Emulator("pong", 0), "num_envs=0: takes a whole number, at least 1"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_read(act: Any, said: str) -> None:
    emulator = Emulator("pong", 2)
    before = emulator.save_state()["consoles"]
    with pytest.raises(EmulatorError, match=said):
        act(emulator)
    np.testing.assert_array_equal(emulator.save_state()["consoles"], before)


def test_numbers_that_are_no_actions_are_noop() -> None:
    emulator, usual = Emulator("pong", 3), Emulator("pong", 3)
    for _ in range(60):
        emulator.step(np.array([-(2**40), 2**32 + 3, 18]))
        usual.step([0, 0, 0])
    np.testing.assert_array_equal(emulator.ram().numpy(), usual.ram().numpy())


def test_rewards_of_others_stay_when_some_start_anew() -> None:
    emulator = Emulator("pong", 2)
    while not (rewards := emulator.reward.numpy().copy()).all():
        emulator.step([0, 0], frames=4)
    emulator.reset([True, False])
    np.testing.assert_array_equal(emulator.reward.numpy(), rewards)


def not_begun() -> Games:
    """Games with a state that was saved before they had begun."""
    games = Games("pong")
    games.load_state(Games("pong").save_state())
    return games


def odd(folder: Path) -> Path:
    path = folder / "odd.bin"
    path.write_bytes(bytes(3000))
    return path


def test_the_command_prints_a_table_and_draws_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["game=pong", "frames=20", "sequences=1", f"out={tmp_path}"]) == 0
    assert "| pong | 20 | 0 | 0 | equal |" in capsys.readouterr().out
    wrong = {**known_games(), "pong": dataclasses.replace(known_games()["pong"], first_line=35)}
    monkeypatch.setattr("dqnspeed.emulator.games.known_games", lambda: wrong)
    assert main(["game=pong", "frames=20", "sequences=1", f"out={tmp_path}"]) == 1
    said = capsys.readouterr()
    assert "| pong | 0 | 0 | 0 | sequence 0, frame 0: " in said.out and str(tmp_path / "pong.png") in said.err
    assert (tmp_path / "pong.png").stat().st_size
    for argument, said in (
        ("gmae=pong", "no option; they are game="),
        ("frames=x", "takes a whole number, at least 1"),
        ("device=cuda translate=yes", "translate=yes: game code is compiled for device=cpu alone."),
    ):
        assert main(argument.split()) == 2 and said in capsys.readouterr().err
    for argument in ("spares=-1", "spares=x"):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["emulator", argument])
            assert bench.main() == 2 and f"{argument}: takes a whole number, or usual." in capsys.readouterr().err
    # Of a GPU the bench's usual translate=yes is not asked for.
    assert options_of(["device=cuda"], bench.OPTIONS, None)["translate"] == "no"


@pytest.mark.parametrize(
    ("game", "known"),
    [
        pytest.param("pong", 1.0, id="all of its code"),
        pytest.param("montezuma_revenge", 0.7, id="E0, and the interpreter for some"),
        pytest.param("ms_pacman", 1.0, id="F8", marks=pytest.mark.slow),
        pytest.param("solaris", 1.0, id="F6", marks=pytest.mark.slow),
        pytest.param("elevator_action", 1.0, id="F8 with RAM", marks=pytest.mark.slow),
        pytest.param("pitfall2", 1.0, id="DPC", marks=pytest.mark.slow),
        pytest.param("robotank", 1.0, id="FE", marks=pytest.mark.slow),
    ],
)
def test_code_that_was_compiled_does_what_the_interpreter_does(
    game: str, known: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter = Emulator(game, 4)
    if known < 1:
        trace = emulator._Traced.trace
        left_out = np.random.default_rng(0)
        monkeypatch.setattr(
            emulator._Traced, "trace", lambda self: trace(self) * (left_out.random(len(self._trace)) < known)
        )
    emulator._translation.cache_clear()
    compiled = Emulator(game, 4, translate=True)
    assert compiled._kernel is not interpreter._kernel
    draws = np.random.default_rng(1)
    for step in range(300):
        actions = draws.integers(18, size=4)
        for each in (interpreter, compiled):
            each.step(actions, 4, step % 3)
        ours, theirs = compiled.save_state(), interpreter.save_state()
        np.testing.assert_array_equal(ours["consoles"], theirs["consoles"])
        np.testing.assert_array_equal(compiled.screen(), interpreter.screen())


def test_a_translation_is_the_same_each_time_so_that_it_is_compiled_once() -> None:
    pong = find("pong")
    first = emulator._translation(pong, None, rom_of(pong))
    emulator._translation.cache_clear()
    assert emulator._translation(pong, None, rom_of(pong)) == first
    assert first.count("TAKE") == 1 and first.count("at_") > 400


def test_a_game_shows_itself_in_one_line() -> None:
    assert repr(find("pong")) == "<Game pong>"
    assert repr(find("pong").at(mode=1)) == "<Game pong, mode 1>"
