"""What ends a frame, what is left of those that end early, and what players press, beside ALE."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("warp")

from assembler import assemble, lines, slide
from beside import Pair

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
WAIT, SECOND, HEIGHT, GO = 0x82, 0x84, 0x86, 0x8A
# Usual frames, by which ALE finds out when it starts what television this is for, until GO says so. The game which ALE
# takes this for is not over.
START = f"""
        SEI
        CLD
        LDX #$FF
        TXS
        STX $80
    usual: LDA #2
        STA VSYNC
        {lines(3, "sync")}
        STX VSYNC
        {lines(200, "upper")}{lines(59, "lower")}
        LDA {GO}
        CMP #$5A
        BNE usual
"""


def where(program: str, label: str) -> int:
    image = assemble(f"{program}.org $FF00\n.word {label}\n")
    return int.from_bytes(image[0xF00:0xF02], "little")


def goes_on_alike(pair: Pair, frames: int) -> None:
    for frame in range(frames):
        pair.frame()
        assert not pair.difference(), f"frame {frame}"


# VSYNC for as long as WAIT says, then once more for as long as SECOND says, written anew while it is set, or not.
VSYNC = f"""
    {START}
    frame: INC $81
        STA WSYNC
        LDA #2
        LDY #0
        STA VSYNC
        JMP ({WAIT})
        {slide("first", 90)}
        {{between}} VSYNC
        JMP ({SECOND})
        {slide("second", 90)}
        STY VSYNC
        LDX {HEIGHT}
    line: STA WSYNC
        STX COLUBK
        INC $88
        DEX
        BNE line
        JMP frame
"""


@pytest.mark.parametrize("between", ["STA", "STY"])
@pytest.mark.parametrize("device", DEVICES)
def test_vsync_ends_a_frame_if_it_lasts_for_a_line(between: str, device: str, tmp_path: Path) -> None:
    """Also of few lines, which leave below them what was drawn there before."""
    program = VSYNC.format(between=between)
    pair, draws = Pair(assemble(program), tmp_path, device), random.Random(1)
    first, second, ended = where(program, "first"), where(program, "second"), set()
    for wait in [*range(58, 88), *draws.choices(range(2, 90), k=60)]:
        pointers = {WAIT: first - wait, SECOND: second - draws.choice([2, 40, 66, 67, 68, 69, 70, 71, 72, 73, 74, 90])}
        cells = {GO: 0x5A, HEIGHT: draws.choice([20, 60, 150, 200, 255])}
        for at, pointer in pointers.items():
            cells |= {at: pointer & 0xFF, at + 1: pointer >> 8}
        pair.set_ram(cells)
        goes_on_alike(pair, 2)
        ended.add(int(pair.rams()[1][1]))
    assert len(ended) > 40


# No VSYNC: lines go by, and something is written to the TIA every so many of them.
LINES = f"""
    {START}
    frame: LDX {HEIGHT}
    line: STA WSYNC
        INC $81
        BNE low
        INC $83
    low: DEX
        BNE line
        LDA $81
        STA {{register}}
        JMP frame
"""


@pytest.mark.parametrize("register", ["COLUBK", "GRP0", "CXCLR", "$88"])
@pytest.mark.parametrize("device", DEVICES)
def test_without_vsync_what_is_written_after_the_last_line_ends_a_frame(
    register: str, device: str, tmp_path: Path
) -> None:
    pair, draws = Pair(assemble(LINES.format(register=register)), tmp_path, device), random.Random(2)
    for _ in range(12):
        pair.set_ram({GO: 0x5A, HEIGHT: draws.choice([1, 2, 7, 100, 255])})
        goes_on_alike(pair, 8)


# Nothing is written to the TIA for HEIGHT x 1280 instructions, about; counts them.
SILENT = f"""
    {START}
    frame: LDY {HEIGHT}
    more: LDX #0
    wait: INC $81
        BNE low
        INC $82
    low: INC $83
        DEX
        BNE wait
        DEY
        BNE more
        LDA $82
        STA COLUBK
        STA WSYNC
        STA PF1
        JMP frame
"""


@pytest.mark.parametrize("device", DEVICES)
def test_a_frame_is_given_up_after_as_many_instructions_and_goes_on_in_the_next(device: str, tmp_path: Path) -> None:
    pair, draws = Pair(assemble(SILENT), tmp_path, device), random.Random(3)
    for _ in range(30):
        pair.set_ram({GO: 0x5A, HEIGHT: draws.choice([1, 5, 19, 20, 21, 60, 200])})
        goes_on_alike(pair, 5)


# All that can be read of what is pressed.
PRESSED = f"""
    {START}
    frame: LDA #2
        STA VSYNC
        STA WSYNC
        STA WSYNC
        INC $81
        LDX #5
    read: LDA INPT0,X
        STA $90,X
        DEX
        BPL read
        LDA SWCHA
        STA $96
        LDA SWCHB
        STA $97
        LDA #0
        STA VSYNC
        JMP frame
"""


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_pressed_is_read_as_in_ale(device: str, tmp_path: Path) -> None:
    """Of the two joysticks that ALE plugs in for a ROM that it does not know; other games compare paddles."""
    pair, seen = Pair(assemble(PRESSED), tmp_path, device), set()
    pair.set_ram({GO: 0x5A})
    for action in [*range(18), 0, 0]:
        pair.frame(action)
        assert not pair.difference(), action
        seen.add(bytes(pair.rams()[1][0x14:0x18]))
    assert len(seen) == 18
