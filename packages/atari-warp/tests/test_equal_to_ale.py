"""Memory, picture, reward, lives and game over of whole games, compared with ALE."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from atari_warp import ConsoleBatch, Emulator, Preprocessing, find_game, known_games
from atari_warp.ale import ale_action, make_ale
from atari_warp.verify import verify
from devices import DEVICES, mostly_integration

# Each kind of cartridge, television, start and port, and games that depend on a rule that most do not need.
VARIED = {
    "pong": (2048, "paddles"),
    "breakout": (2048, "paddles, power-on memory"),
    "space_invaders": (4096, "a player that is reset while it is drawn"),
    "seaquest": (4096, "collisions under the comb"),
    "air_raid": (4096, "colours of a PAL television"),
    "amidar": (4096, "a long VSYNC"),
    "journey_escape": (4096, "starfield of missile 0"),
    "qbert": (4096, "pictures made of two frames"),
    "asteroids": (8192, "F8, no comb"),
    "montezuma_revenge": (8192, "E0"),
    "robotank": (8192, "FE, a ball that is reset after a movement"),
    "solaris": (16384, "F6"),
    "surround": (2048, "the right port, SELECT at the start"),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("game", VARIED)
def test_games_equal_ale_in_every_frame(game: str, device: str) -> None:
    result = verify(game, frames=600 if device == "cpu" else 400, sequences=2, seed=3, device=device)
    assert result.refused is None and result.difference is None, result.line()
    assert result.frames > 300


@pytest.mark.parametrize(
    "game",
    [
        "seaquest", "montezuma_revenge", "ms_pacman", "freeway",  # joysticks; the last two have no use for FIRE
        "lost_luggage", "skiing",  # some actions count as NOOP
        "breakout", "casino", "pong",  # paddles
        "surround",  # the right port
    ],
)  # fmt: skip
def test_games_equal_ale_under_all_18_actions(game: str) -> None:
    result = verify(game, frames=3000, sequences=1, seed=5, actions="all")
    assert result.refused is None and result.difference is None, result.line()


@pytest.mark.parametrize("game", ["hangman", "tic_tac_toe_3d"])  # a score ends the game; the end of the game scores
def test_a_game_equals_ale_until_it_ends(game: str) -> None:
    result = verify(game, frames=3000, sequences=1, seed=7)
    assert result.refused is None and result.difference is None, result.line()
    assert result.frames < 3000 and result.scored == result.ended == 1


MODES = [
    ("breakout", 8, 1),
    ("berzerk", 17, 0),  # SELECT after a pause
    ("double_dunk", 13, 0),  # a menu
    ("lost_luggage", 1, 1),  # SELECT less often than for the default mode
    ("video_cube", 1201, 1),  # RIGHT, until the number of a cube is reached
    ("boxing", None, 3),
    ("tic_tac_toe_3d", 3, 2),  # SELECT less often than at the default difficulty
    ("casino", 3, 0),  # no money, but not over
    ("space_invaders", 5, 0),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", mostly_integration(MODES, 2))
def test_other_modes_and_difficulties_equal_ale(case: tuple[str, int | None, int]) -> None:
    game, mode, difficulty = case
    result = verify(game, frames=300, sequences=2, seed=3, mode=mode, difficulty=difficulty)
    assert result.refused is None and result.difference is None, result.line()
    if game not in VARIED:
        default = verify(game, frames=300, sequences=2, seed=3)
        assert default.refused is None and default.difference is None, default.line()


def test_sequences_with_points_can_be_searched_and_compared() -> None:
    result = verify("breakout", frames=400, sequences=2, seed=3, consoles=64)
    assert result.difference is None and result.scored >= 2, result.line()
    assert verify("pong", frames=8, sequences=3, consoles=2).frames == 16  # two consoles, two sequences
    assert "mode=1: adventure has mode 0 here." in (verify("adventure", frames=8, sequences=1, mode=1).refused or "")


@pytest.mark.parametrize("game", [game.name for game in known_games().values() if game.paddle is not None])
def test_a_paddle_that_is_turned_to_its_end_and_back_equals_ale(game: str) -> None:
    emulator, ale = Emulator(game), make_ale(game)
    for frame in range(300):
        action = (4, 0, 3)[frame // 100]  # LEFT, NOOP, RIGHT
        emulator.step([action])
        ale.act(ale_action(action))
        np.testing.assert_array_equal(emulator.ram()[0], ale.getRAM(), err_msg=str(frame))


@pytest.mark.parametrize("game", ["lost_luggage", "skiing"])
def test_illegal_actions_are_noop(game: str) -> None:
    assert find_game(game).legal == (0, 2, 3, 4, 5, 6, 7, 8, 9)
    emulator, ale, draws = Emulator(game), make_ale(game), np.random.default_rng(0)
    agent, other = (ConsoleBatch(game, preprocessing=Preprocessing(actions=actions)) for actions in ((0, 1, 17), (0,)))
    for batch in (agent, other):
        batch.reset([1])
    for frame in range(200):
        action = int(draws.choice([1, 10, 11, 12, 13, 14, 15, 16, 17])) if frame % 8 < 4 else int(draws.integers(18))
        emulator.step([action])
        ale.act(ale_action(action))
        agent.step([frame % 3])
        other.step([0])
        np.testing.assert_array_equal(emulator.ram()[0], ale.getRAM(), err_msg=str(frame))
        np.testing.assert_array_equal(agent.ram(), other.ram())


def test_lives_at_game_over_equal_ale() -> None:
    for game, byte, value, lives in (("adventure", 96, 2, 1), ("breakout", 57, 0, 0)):
        emulator, ale = Emulator(game), make_ale(game)
        ale.setRAM(byte, value)
        emulator.ram()[0, byte] = value
        emulator.step([0])
        ale.act(ale_action(0))
        assert ale.game_over() and emulator.terminated[0]
        assert ale.lives() == emulator.lives[0] == lives, game


@pytest.mark.parametrize(("game", "fire"), [("breakout", True), ("skiing", False)])  # in Skiing NOOP costs points
def test_noops_at_a_start_equal_ale_and_their_points_belong_to_the_first_step(game: str, fire: bool) -> None:
    counts = set[int]()
    for seed in range(4):
        options = Preprocessing(
            use_fire_reset=fire, start_order="noops_then_fire", reward_clipping=False, actions=(0, 3)
        )
        batch, ale = ConsoleBatch(game, 1, preprocessing=options), make_ale(game)
        first = ale.getEpisodeFrameNumber()
        batch.reset([seed])
        noops = int(batch.registers()["frames"][0]) - first - fire
        counts.add(noops)
        pressed = [0] * noops + [1] * fire
        owed = sum(ale.act(ale_action(action)) for action in pressed)
        np.testing.assert_array_equal(batch.ram()[0], ale.getRAM())
        np.testing.assert_array_equal(batch.screen()[0], ale.getScreen())
        batch.step([1])
        assert batch.reward.tolist() == [owed + sum(ale.act(ale_action(3)) for _ in range(4))]
        np.testing.assert_array_equal(batch.ram()[0], ale.getRAM())
        assert game != "skiing" or owed < 0
    assert len(counts) > 2 and counts <= set(range(1, 31))


VSYNC = bytes.fromhex("A9 02 85 02 85 00 85 02 85 02 A9 00 85 00")


def waiting_program() -> bytes:
    """ROM that waits for the timer in many ways, and stores the timer after each."""
    loops = [
        "AD 84 02 D0 FB",  # LDA INTIM, BNE
        "AE 84 02 D0 FB",  # LDX
        "AC 84 02 10 FB",  # LDY, BPL
        "AD 94 02 D0 FB",  # a mirror of INTIM
        "AD 85 02 10 FB",  # INSTAT
        "2C 85 02 10 FB",  # BIT
        "A9 00 F0 03 AD 84 02 F0 FB",  # entered at its end, with flags of another value
        "18 90 03 AD 84 02 B0 FB",  # a flag that the timer does not set
        "A2 03 AD 84 02 CA D0 FA",  # three instructions
    ]
    code, cell = bytearray.fromhex("78 D8 A2 FF 9A"), 0x80
    begin = len(code)
    code += VSYNC
    for timer in (0x95, 0x96):  # intervals of 8 and 64 cycles
        for loop in map(bytes.fromhex, loops):
            for value in (9, 20):
                code += bytes([0xA9, value, 0x8D, timer, 2]) + loop
                code += bytes([0xAD, 0x84, 2, 0x85, cell])
                cell += 1
    for value in (5, 30):  # loops across a page boundary
        code += bytes(0xEA for _ in range(-(len(code) + 9) % 256))
        code += bytes([0xA9, value, 0x8D, 0x95, 2]) + bytes.fromhex(loops[0])
        code += bytes([0xAD, 0x84, 2, 0x85, cell])
        cell += 1
    code += bytes.fromhex("A2 38 B5 00 85 F9")  # INPT0, indexed
    code += bytes.fromhex("A2 C8 85 02 CA D0 FB 4C") + bytes([begin, 0xF0])
    rom = bytearray(code.ljust(4096, b"\xea"))
    rom[0xFFC:] = bytes.fromhex("00F000F0")
    return bytes(rom)


def test_loops_that_wait_for_the_timer_equal_ale(tmp_path: Path) -> None:
    rom = tmp_path / "seaquest.bin"  # ALE takes the game from the name
    rom.write_bytes(waiting_program())
    ale, emulator = make_ale("seaquest", rom=rom), Emulator("seaquest", rom=rom)
    np.testing.assert_array_equal(emulator.ram()[0], ale.getRAM())
