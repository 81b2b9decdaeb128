"""Game overs that random play rarely reaches, written into memory and compared with ALE."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from atari_warp import Emulator
from atari_warp.ale import ale_action, make_ale
from devices import mostly_integration

SQUARES = [*range(8), *range(9, 17), *range(18, 26), *range(27, 35)]  # of a draughts board


def othello(memory: np.ndarray, frame: int, draws: np.random.Generator) -> None:
    """No player can move, except for a moment."""
    if frame != 30:
        memory[64] = 0
    if frame % 20 == 5:
        memory[[78, 80]] = draws.choice([0x10, 0x23, 0x31], 2)


def video_checkers(memory: np.ndarray, frame: int, draws: np.random.Generator) -> None:
    """A board with few men, sometimes all of one side."""
    if frame % 10 == 0:
        men = [0, 16, 32] if frame % 20 else [0, 144, 160] if frame % 40 else [0, 16, 144]
        memory[SQUARES] = draws.choice(men, len(SQUARES), p=[0.8, 0.1, 0.1])


def backgammon(memory: np.ndarray, frame: int, draws: np.random.Generator) -> None:
    """All men of one side are borne off, or all but one; the other side is random, sometimes short of a man."""
    if frame % 10 == 0:
        memory[:28] = 0
        off, one, other = ((0, -1, 1), (14, 1, -1))[draws.integers(2)]
        points = np.zeros(28, np.int64)
        points[off] = one * draws.choice([14, 15])
        free = [point for point in range(28) if point != off]
        for _ in range(draws.choice([14, 15, 15])):
            points[draws.choice(free)] += other
        memory[:28] = points.astype(np.uint8)


def casino(memory: np.ndarray, frame: int, draws: np.random.Generator) -> None:
    """Money or none, at each table."""
    if frame % 3 == 0:
        memory[[12, 21]] = draws.choice([0, 0x05, 0x20], 2, p=[0.1, 0.5, 0.4])
        memory[84] = draws.choice([0, 1, 3])
        memory[[30, 83]] = draws.choice([0, 1, 170]), draws.choice([5, 140], p=[0.8, 0.2])


def video_cube(memory: np.ndarray, frame: int, draws: np.random.Generator) -> None:
    """Some sides of one colour, later all of them."""
    if frame % 10 == 0:
        for side in range(6):
            colours = draws.integers(6) if draws.random() < 0.4 + frame / 200 else draws.integers(6, size=9)
            memory[32 + 9 * side : 41 + 9 * side] = colours


def haunted_house(memory: np.ndarray, frame: int, draws: np.random.Generator) -> None:
    """A match is lit now and then, also after the hundredth; the urn is brought home, or the last life is lost."""
    if frame == 0:
        memory[2] = draws.choice([0, 0x95])
    elif draws.random() < 0.2:
        matches = 10 * (memory[2] >> 4) + (memory[2] & 15) + draws.choice([1, 1, 9])
        memory[2] = 16 * (matches // 10 % 10) + matches % 10
    if frame > 40:
        memory[25] = draws.choice([0, 68], p=[0.9, 0.1])
        memory[22] = draws.choice([0, 3], p=[0.02, 0.98])


def crazy_climber(memory: np.ndarray, frame: int, draws: np.random.Generator) -> None:
    """A score that sometimes falls, also in the last frame."""
    memory[2:6] = draws.integers(10, size=4)
    memory[42] = draws.choice([0, 2], p=[0.03, 0.97])


def darkchambers(memory: np.ndarray, frame: int, draws: np.random.Generator) -> None:
    """A score that grows and sometimes falls."""
    if draws.random() < 0.3:
        memory[[76, 79]] = draws.choice([0x10, 0x25]), frame // 10
    if draws.random() < 0.01:
        memory[79] = 0


def star_gunner(memory: np.ndarray, frame: int, draws: np.random.Generator) -> None:
    """Lives are won and lost, sometimes a life is won first."""
    memory[7] = draws.choice([memory[7], min(memory[7] + 1, 9), max(memory[7] - 1, 1), 0], p=[0.5, 0.2, 0.29, 0.01])
    memory[4] = draws.choice([0, 1])


def miniature_golf(memory: np.ndarray, frame: int, draws: np.random.Generator) -> None:
    """The picture shows a hole and its par, or strokes, which pass a hundred; the game ends after the last hole."""
    if frame % 2 == 0:
        strokes = (frame * 3 + 90) % 100
        memory[7] = draws.choice([16 * (strokes // 10) + strokes % 10, draws.integers(256)], p=[0.8, 0.2])
        memory[8] = draws.choice([0, draws.integers(1, 20)], p=[0.7, 0.3])
        memory[47] = draws.choice([memory[47], (memory[47] + 1) % 10, 0], p=[0.7, 0.28, 0.02])


def word_zapper(memory: np.ndarray, frame: int, draws: np.random.Generator) -> None:
    """Words are left to spell; the clock stops at its end, with words spelt or not."""
    if frame % 3 == 1:
        memory[92] = draws.integers(4)
        memory[79] = draws.choice([0, 0x25, 0x99])


WRITERS: dict[Callable[[np.ndarray, int, np.random.Generator], None], set[int]] = {  # and rewards that must occur
    othello: set(),
    video_checkers: {1},
    backgammon: {-1, 1},
    casino: {-15, 15},
    video_cube: {-1, 6},
    haunted_house: {-1, 99, 100},
    crazy_climber: set(),
    darkchambers: {0},
    star_gunner: {1000},
    miniature_golf: {-1, 1},
    word_zapper: {-1, 1, 2},
}


@pytest.mark.parametrize("write", mostly_integration(WRITERS, 2))
def test_memories_near_a_game_over_equal_ale(
    write: Callable[[np.ndarray, int, np.random.Generator], None],
) -> None:
    name, draws = write.__name__, np.random.default_rng(0)
    ale, emulator = make_ale(name), Emulator(name)
    ends, points = 0, set[int]()
    for _ in range(24):
        ale.reset_game()
        emulator.reset()
        for frame in range(120):
            memory = ale.getRAM()
            write(memory, frame, draws)
            for byte in np.flatnonzero(memory != ale.getRAM()):
                ale.setRAM(int(byte), int(memory[byte]))
            emulator._state.numpy()[0, :128] = memory
            action = int(draws.integers(2))
            reward = ale.act(ale_action(action))
            emulator.step([action])
            points.add(reward)
            ours = int(emulator.reward[0]), int(emulator.lives[0]), bool(emulator.terminated[0])
            assert ours == (reward, ale.lives(), ale.game_over()), frame
            np.testing.assert_array_equal(emulator.ram()[0], ale.getRAM())
            if ale.game_over():
                ends += 1
                break
    assert ends >= 12 and WRITERS[write] <= points and len(points) > 1, (ends, points)
