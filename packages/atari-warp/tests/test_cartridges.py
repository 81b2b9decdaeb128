"""Hardware of cartridges, compared with ALE: a display processor, RAM, and bank switching."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from assembler import assemble, lines
from atari_warp import Emulator
from devices import DEVICES
from side_by_side import ale_with

MEMORY = 128  # bytes, from address $80 on


def bank(body: str) -> bytes:
    """4 KiB that run ``body`` after a reset and then draw empty frames; addresses below $F100 are free for hardware."""
    image = bytearray(
        assemble(f"""
        .org $F100
        SEI
        CLD
        LDX #$FF
        TXS
        {body}
        frame:
        LDA #2
        STA VSYNC
        {lines(3, "sync")}
        STX VSYNC
        {lines(250, "shown")}
        JMP frame
        """)
    )
    image[:0x100] = bytes(0x100)
    image[0xFFC:0xFFE] = b"\x00\xf1"
    return bytes(image)


def memories(game: str, image: bytes, folder: Path, device: str, starts: int = 1) -> list[np.ndarray]:
    """Memory after each of ``starts`` starts with a cartridge in ALE, which the emulator must equal."""
    ale, found = ale_with(image, folder, game), list[np.ndarray]()
    emulator = Emulator(game, device=device, rom=folder / f"{game}.bin")
    for start in range(starts):
        if start:
            ale.reset_game()
            emulator.reset()
        found.append(ale.getRAM().copy())
        assert emulator.ram()[0].tolist() == found[-1].tolist()
    return found


def with_display(body: str) -> bytes:
    """Cartridge with a display processor, two equal banks and random display data."""
    draws = random.Random(1)
    return bank(body) * 2 + bytes(draws.randrange(256) for _ in range(2048)) + bytes(255)


@pytest.mark.parametrize("device", DEVICES)
def test_reads_of_the_display_processor_equal_ale(device: str, tmp_path: Path) -> None:
    draws, body, read = random.Random(0), "", 0
    while read < MEMORY:
        if draws.random() < 0.4:
            register, value = draws.randrange(0x40, 0x80), draws.randrange(256)
            if 0x58 <= register < 0x60:
                value &= 0xEF  # without music, which advances with time
            body += f"LDA #{value}\nSTA ${0x1000 + register:04X}\n"
        else:
            register = draws.choice([*range(4), *range(8, 0x40)])
            body += f"LDA ${0x1000 + register:04X}\nSTA ${0x80 + read:02X}\n"
            read += 1
    (found,) = memories("pitfall2", with_display(body), tmp_path, device)
    assert len(set(found.tolist())) > 30


@pytest.mark.parametrize("device", DEVICES)
def test_a_fetcher_counts_down_between_its_limits(device: str, tmp_path: Path) -> None:
    reads = "".join(f"LDA ${0x1010 + 8 * (k % 6):04X}\nSTA ${0x80 + k:02X}\n" for k in range(MEMORY))
    body = "LDA #100\nSTA $1040\nLDA #40\nSTA $1048\nLDA #120\nSTA $1050\nLDA #1\nSTA $1058\n" + reads
    (found,) = memories("pitfall2", with_display(body), tmp_path, device)
    flags = found[5::6].tolist()  # every sixth read is of the flag
    assert set(flags) == {0, 255}
    assert flags == sorted(flags[: flags.index(255)]) + [255] * flags.count(255) + [0] * (
        len(flags) - flags.index(255) - flags.count(255)
    )


# Code between a reset of the random number and its next read, and the number of shifts that it causes.
SHIFTS = {
    "NOP": 0, "LDA $1006": 1, "STA $1006": 1, "INC $1006": 2, "STA $1800": 1, "LDA $1800": 0, "LDA $1080": 0,
    "LDA $1FC0": 1, "LDA $1FBF": 0, "LDA $FFF9": 1, "JSR $FFC0": 3, "JSR $FFC8": 4, "LDX #128\nLDA $0F90,X": 1,
    "LDX #128\nLDA $1090,X": 0, "LDX #128\nSTA $10D0,X": 1, "LDA $1F00": 0,
}  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
def test_accesses_that_shift_the_random_number_equal_ale(device: str, tmp_path: Path) -> None:
    body = "".join(f"STA $1070\n{done}\nLDA $1000\nSTA ${0x80 + k:02X}\n" for k, done in enumerate(SHIFTS))
    image = bytearray(with_display(body))
    for half in (0, 4096):
        image[half + 0xFC0 : half + 0xFC3] = b"\xa9\x01\x60"  # LDA #1, RTS
        image[half + 0xFC8 : half + 0xFCC] = b"\xea\xd0\x00\x60"  # NOP, a branch to the next instruction, RTS
    (found,) = memories("pitfall2", bytes(image), tmp_path, device)
    number, numbers = 1, list[int]()
    for _ in range(6):
        number = (number << 1 | (1 ^ number >> 7 ^ number >> 5 ^ number >> 4 ^ number >> 3) & 1) & 255
        numbers.append(number)
    assert dict(zip(SHIFTS, map(numbers.index, found.tolist()), strict=False)) == SHIFTS


@pytest.mark.parametrize("device", DEVICES)
def test_the_ram_of_a_superchip_at_each_start_equals_ale(device: str, tmp_path: Path) -> None:
    copy = "LDX #127\ncopy: LDA $F080,X\nSTA $80,X\nDEX\nBPL copy\n"
    found = memories("elevator_action", bank(copy) * 2, tmp_path, device, starts=12)
    assert len({tuple(memory) for memory in found}) == 12


@pytest.mark.parametrize("device", DEVICES)
def test_the_write_port_of_a_superchip_reads_as_the_rom_below_it(device: str, tmp_path: Path) -> None:
    pointed = "LDA #$7D\nSTA $E0\nLDA #$10\nSTA $E1\nLDY #2\nLDA ($E0),Y\nSTA $80\n"
    image = bytearray(bank(f"{pointed}LDA $F07F\nSTA $81\nLDA $F0FF\nSTA $82\n"))
    image[:0x100] = b"\x5a" * 0x100
    (found,) = memories("elevator_action", bytes(image) * 2, tmp_path, device)
    assert found[:2].tolist() == [0x5A, 0x5A] and found[2] != 0x5A


# Code in bank 1 of two, and the bank after it.
BANKS = {
    "LDA $FFF8": 0, "STA $FFF8": 0, "LDA $1FF8": 0, "LDA $FFF7": 1, "LDA $FFFA": 1,
    "LDX #1\nSTA $FFF7,X": 0, "LDX #255\nLDA $FFF9,X": 1, "LDX #255\nSTA $1FF9,X": 1, "LDX #255\nINC $1FF9,X": 1,
    "JMP $FFF6": 1,
}  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
def test_banks_are_switched_by_reads_and_writes_only(device: str, tmp_path: Path) -> None:
    body = "".join(f"LDA $FFF9\n{done}\nback{k}: LDA $F0FF\nSTA ${0x80 + k:02X}\n" for k, done in enumerate(BANKS))
    image = bytearray(bank(body) * 2)
    image[0x10FF] = 1
    target = bank(body).index(bytes([0x4C, 0xF6, 0xFF])) + 3  # the instruction after the jump
    for half in (0, 4096):
        image[half + 0xFF6 : half + 0xFF8] = b"\xd0\x82"  # a branch back, across the switches
        image[half + 0xF7A : half + 0xF7D] = bytes([0x4C, target & 255, 0xF0 + (target >> 8)])
    (found,) = memories("earthworld", bytes(image), tmp_path, device)
    assert dict(zip(BANKS, found.tolist(), strict=False)) == BANKS
