"""What ends a frame, what is left of those that end early, and what players press, beside ALE."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest
from assembler import assemble, lines, slide
from devices import DEVICES
from side_by_side import Pair

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


# Of what reads the TIA, also by the way, and of what does not: an index of zero page is added without a read before.
@pytest.mark.parametrize("access", ["", "LDA CXM0P", "LDA $7F", "LDA $3F,X", "INC 2,X", "LDA (2,X)", "STA 9,X"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_frame_is_given_up_after_as_many_instructions_and_goes_on_in_the_next(
    access: str, device: str, tmp_path: Path
) -> None:
    pair, draws = Pair(assemble(SILENT.format(access=access)), tmp_path, device), random.Random(3)
    for _ in range(30):
        pair.set_ram({GO: 0x5A, HEIGHT: draws.choice([1, 5, 19, 20, 21, 60, 200])})
        goes_on_alike(pair, 5)


# VSYNC ends a frame in the midst of a line after WAIT, with the objects drawn that {{extra}} switches on.
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
SWITCHED_ON = {"PF0": 0xF0, "PF1": 0x55, "GRP0": 0xFF, "GRP1": 0x81, "ENAM0": 2, "ENAM1": 2, "ENABL": 2}


@pytest.mark.slow
@pytest.mark.parametrize("control", [0, 2, 4, 0x17])
@pytest.mark.parametrize("device", DEVICES)
def test_a_frame_that_ends_in_a_line_ends_as_in_ale(control: int, device: str, tmp_path: Path) -> None:
    """ALE draws up to three pixels more, if some objects are switched on together."""
    draws = random.Random(control)
    for count in (0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 4):
        objects = draws.sample(list(SWITCHED_ON), count)
        places = "\n".join(
            f"STA {name}\nNOP" for name in draws.sample(["RESP0", "RESP1", "RESM0", "RESM1", "RESBL"], 4)
        )
        on = "\n".join(f"LDA #{SWITCHED_ON[name]}\nSTA {name}" for name in objects)
        program = IN_A_LINE.format(end="STA VSYNC", extra=f"STA WSYNC\n{places}\n{on}\nLDA #{control}\nSTA CTRLPF")
        pair, first = Pair(assemble(program), tmp_path, device), where(program, "first")
        for wait in draws.sample(range(2, 60), 12):
            pair.set_ram({GO: 0x5A, WAIT: first - wait & 0xFF, WAIT + 1: first - wait >> 8})
            goes_on_alike(pair, 2)


@pytest.mark.parametrize("device", DEVICES)
def test_calls_and_interruptions_end_a_frame_when_they_end(device: str, tmp_path: Path) -> None:
    """They push all at once, to VBLANK and VSYNC here."""
    for stack, call in product((0, 1, 2), ("NOP\nJSR after", "JSR after", "NOP\nBRK\nNOP", "BRK\nNOP")):
        program = IN_A_LINE.format(end=f"LDX #{stack}\nTXS\n{call}\nafter: STA VSYNC", extra="STX PF1")
        image = bytearray(assemble(program))
        image[-2:] = where(program, "after").to_bytes(2, "little")
        pair, first = Pair(bytes(image), tmp_path, device), where(program, "first")
        for wait in range(2, 60, 7):
            pair.set_ram({GO: 0x5A, WAIT: first - wait & 0xFF, WAIT + 1: first - wait >> 8})
            goes_on_alike(pair, 2)


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
