"""Starfield of missile 0, compared with ALE: its motion changes while HMOVE moves it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from assembler import assemble, frames, lines
from devices import DEVICES
from side_by_side import Pair
from sweep import delay

Writes = list[tuple[int, str, int]]  # cycle of a line, register, value

BEGINS: Writes = [(3, "HMOVE", 0), (24, "HMM0", 0x60)]
ROWS, DRAWN = 100, 180  # lines with writes, and all visible lines
VALUES = {
    "NUSIZ0": [0, 1, 3, 5, 0x10, 0x20, 0x30], "HMM0": [0, 0x60, 0x70, 0x80], "RESMP0": [0, 2], "ENAM0": [0, 2, 2],
    "HMOVE": [0], "RESM0": [0], "RESP0": [0], "HMCLR": [0],
}  # fmt: skip


def line(writes: Writes) -> str:
    code, at = "STA WSYNC\n", 0
    for cycle, register, value in writes:
        loads = f"LDA #{value}\n" if value or cycle > 3 else ""
        code += f"{loads}{delay(cycle - at - 3 - 2 * bool(loads))}STA {register}\n"
        at = cycle
    return code


def program(draws: random.Random) -> bytes:
    """Program that starts a starfield in each frame, with random writes that disturb it."""
    rows: dict[int, Writes] = {
        0: [
            *((10, "COLUP0", 0x46), (15, "COLUBK", 2), (20, "ENAM0", 2), (25, "HMM0", 0x70)),
            (30, "NUSIZ0", draws.choice(VALUES["NUSIZ0"])),
            (draws.randint(35, 70), "RESM0", 0),
        ],
        4: BEGINS,
        48: [(60, "HMM0", 0x70)],
        draws.randint(50, 70): BEGINS,
    }
    for _ in range(draws.randint(1, 5)):
        register = draws.choice(list(VALUES))
        rows.setdefault(
            draws.randrange(5, ROWS), [(draws.randint(8, 70), register, draws.choice(VALUES[register]))]
        )  # fmt: skip
    visible = "".join(line(rows.get(row, [])) for row in range(ROWS)) + lines(DRAWN - ROWS, "rest")
    above = draws.choice(["", "STA HMOVE\n", "STA RESM0\n", "LDA #$20\nSTA NUSIZ0\n"])
    return assemble(frames(visible, above, below=draws.choice([8, 13, 20, 30])))


@pytest.mark.parametrize("device", DEVICES)
def test_starfields_equal_ale(device: str, tmp_path: Path) -> None:
    draws, rows = random.Random(1), list[int]()
    for number in range(15):
        pair = Pair(program(draws), tmp_path, device)
        for _ in range(3):
            pair.frame()
            assert not pair.difference(), number
        rows.append(len({row.tobytes() for row in pair.screens()[0]}))
    assert sorted(rows)[7] > 90  # half of the programs have many different rows, so they show stars
