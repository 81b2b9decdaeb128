"""Frames, compared with ALE: how they end, pixels that short frames leave, and input."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest
from assembler import assemble, lines, slide
from devices import DEVICES, mostly_integration
from side_by_side import Pair

WAIT, SECOND, HEIGHT, GO = 0x82, 0x84, 0x86, 0x8A
# Normal frames, from which ALE determines the television standard, until GO is set. The game that ALE expects is not
# over.
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


def address_of(program: str, label: str) -> int:
    image = assemble(f"{program}.org $FF00\n.word {label}\n")
    return int.from_bytes(image[0xF00:0xF02], "little")


def check_frames(pair: Pair, frames: int) -> None:
    for frame in range(frames):
        pair.frame()
        assert not pair.difference(), f"frame {frame}"


# VSYNC for the time in WAIT, and again for the time in SECOND; between them VSYNC is cleared, or set once more.
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
def test_vsync_of_at_least_a_line_ends_a_frame(between: str, device: str, tmp_path: Path) -> None:
    """Short frames keep old pixels below their last line."""
    program = VSYNC.format(between=between)
    pair, draws = Pair(assemble(program), tmp_path, device), random.Random(1)
    first, second, ended = address_of(program, "first"), address_of(program, "second"), set()
    for wait in [*range(58, 88), *draws.choices(range(2, 90), k=60)]:
        pointers = {WAIT: first - wait, SECOND: second - draws.choice([2, 40, 66, 67, 68, 69, 70, 71, 72, 73, 74, 90])}
        cells = {GO: 0x5A, HEIGHT: draws.choice([20, 60, 150, 200, 255])}
        for at, pointer in pointers.items():
            cells |= {at: pointer & 0xFF, at + 1: pointer >> 8}
        pair.set_ram(cells)
        check_frames(pair, 2)
        ended.add(int(pair.rams()[1][1]))
    assert len(ended) > 40


# No VSYNC: after every HEIGHT lines a register of the TIA is written.
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
def test_without_vsync_a_write_after_the_last_line_ends_a_frame(register: str, device: str, tmp_path: Path) -> None:
    pair, draws = Pair(assemble(LINES.format(register=register)), tmp_path, device), random.Random(2)
    for _ in range(12):
        pair.set_ram({GO: 0x5A, HEIGHT: draws.choice([1, 2, 7, 100, 255])})
        check_frames(pair, 8)


# About HEIGHT x 1280 instructions without a write to the TIA, and a count of them.
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
        LDX #$90
        {{access}}
        DEY
        BNE more
        LDA $82
        STA COLUBK
        STA WSYNC
        STA PF1
        JMP frame
"""


# Instructions with and without reads of the TIA. Indexed zero page makes no read before the index is added.
@pytest.mark.parametrize("access", ["", "LDA CXM0P", "LDA $7F", "LDA $3F,X", "INC 2,X", "LDA (2,X)", "STA 9,X"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_frame_with_too_many_instructions_continues_in_the_next(access: str, device: str, tmp_path: Path) -> None:
    pair, draws = Pair(assemble(SILENT.format(access=access)), tmp_path, device), random.Random(3)
    for _ in range(30):
        pair.set_ram({GO: 0x5A, HEIGHT: draws.choice([1, 5, 19, 20, 21, 60, 200])})
        check_frames(pair, 5)


# VSYNC ends a frame within a line after WAIT; {{extra}} enables objects.
IN_A_LINE = f"""
    {START}
    frame: INC $81
        STA WSYNC
        LDA #2
        STA VSYNC
        STA WSYNC
        STA WSYNC
        LDA #$46
        STA COLUBK
        LDA #0
        JMP ({WAIT})
        {slide("first", 90)}
        {{end}}
        LDX #$FF
        TXS
        {{extra}}
        LDX #120
    line: STA WSYNC
        STX COLUP0
        STX COLUP1
        STX COLUPF
        DEX
        BNE line
        JMP frame
"""
ENABLED = {"PF0": 0xF0, "PF1": 0x55, "GRP0": 0xFF, "GRP1": 0x81, "ENAM0": 2, "ENAM1": 2, "ENABL": 2}


@pytest.mark.slow
@pytest.mark.parametrize("control", mostly_integration([0, 0x17, 2, 4], 4))
@pytest.mark.parametrize("device", DEVICES)
def test_a_frame_that_ends_within_a_line_equals_ale(control: int, device: str, tmp_path: Path) -> None:
    """ALE draws up to three more pixels if certain objects are enabled together."""
    draws = random.Random(control)
    for count in (0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 4):
        objects = draws.sample(list(ENABLED), count)
        places = "\n".join(
            f"STA {name}\nNOP" for name in draws.sample(["RESP0", "RESP1", "RESM0", "RESM1", "RESBL"], 4)
        )
        on = "\n".join(f"LDA #{ENABLED[name]}\nSTA {name}" for name in objects)
        program = IN_A_LINE.format(end="STA VSYNC", extra=f"STA WSYNC\n{places}\n{on}\nLDA #{control}\nSTA CTRLPF")
        pair, first = Pair(assemble(program), tmp_path, device), address_of(program, "first")
        for wait in draws.sample(range(2, 60), 12):
            pair.set_ram({GO: 0x5A, WAIT: first - wait & 0xFF, WAIT + 1: first - wait >> 8})
            check_frames(pair, 2)


@pytest.mark.parametrize("device", DEVICES)
def test_jsr_and_brk_end_a_frame_when_they_end(device: str, tmp_path: Path) -> None:
    """JSR and BRK push all bytes in their last cycle, here to VBLANK and VSYNC."""
    for stack, call in product((0, 1, 2), ("NOP\nJSR after", "JSR after", "NOP\nBRK\nNOP", "BRK\nNOP")):
        program = IN_A_LINE.format(end=f"LDX #{stack}\nTXS\n{call}\nafter: STA VSYNC", extra="STX PF1")
        image = bytearray(assemble(program))
        image[-2:] = address_of(program, "after").to_bytes(2, "little")
        pair, first = Pair(bytes(image), tmp_path, device), address_of(program, "first")
        for wait in range(2, 60, 7):
            pair.set_ram({GO: 0x5A, WAIT: first - wait & 0xFF, WAIT + 1: first - wait >> 8})
            check_frames(pair, 2)


# All registers that input changes.
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
def test_input_equals_ale(device: str, tmp_path: Path) -> None:
    """ALE connects two joysticks for an unknown ROM. Paddles are compared in games."""
    pair, seen = Pair(assemble(PRESSED), tmp_path, device), set()
    pair.set_ram({GO: 0x5A})
    for action in [*range(18), 0, 0]:
        pair.frame(action)
        assert not pair.difference(), action
        seen.add(bytes(pair.rams()[1][0x14:0x18]))
    assert len(seen) == 18
