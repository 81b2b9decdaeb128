"""RIOT, compared with ALE: its timer around its edges, its ports, and mirrors of its memory."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from assembler import assemble, slide
from devices import DEVICES
from side_by_side import Pair

READS, NEXT = 8, chr(10)
VALUE, LOOPS, WAIT, READ_AT, WRITE_TO, GO, SHAPE = 0x81, 0x82, 0x84, 0x86, 0x88, 0x8A, 0x8B
RESULTS = 0x90

# Write VALUE to the timer through the pointer WRITE_TO, wait for about LOOPS x 256 cycles, then read eight times
# through READ_AT, in turn from both registers.
TIMER = f"""
        SEI
        CLD
    frame:
        LDX #$FF
        TXS
        STX $80
        LDA #2
        STA VSYNC
        LDA {GO}
        CMP #$5A
        BEQ go
        JMP end
    go:
        LDY #0
        LDX {LOOPS}
        LDA {VALUE}
        STA ({WRITE_TO}),Y
        CPX #0
        BEQ near
    far: LDY #50
    loop: DEY
        BNE loop         ; 5 x 50 - 1
        NOP
        DEX
        BNE far
    near: JMP ({WAIT})
        {slide("waited", 80)}
        {"".join(f"LDA ({READ_AT + k % 2 * 0x20}),Y{NEXT}STA {RESULTS + k}{NEXT}" for k in range(READS))}
        LDA {SHAPE}      ; write again after the reads, and read twice
        STA ({WRITE_TO}),Y
        LDA ({READ_AT}),Y
        STA {RESULTS + READS}
        LDA ({READ_AT + 0x20}),Y
        STA {RESULTS + READS + 1}
    end: LDA #0
        STA {GO}
        STA WSYNC
        STA WSYNC
        STA VSYNC
        JMP frame
"""
FACTORS = {0x294: 1, 0x295: 8, 0x296: 64, 0x297: 1024}


def where_waited() -> int:
    """Address that ``slide`` counts back from."""
    image = assemble(TIMER + ".org $FF00\n.word waited\n")
    return int.from_bytes(image[0xF00:0xF02], "little")


@pytest.mark.parametrize("device", DEVICES)
def test_the_timer_equals_ale_around_its_edges(device: str, tmp_path: Path) -> None:
    pair, waited, draws = Pair(assemble(TIMER), tmp_path, device), where_waited(), random.Random(0)
    wrong, cases = [], []
    for register, factor in FACTORS.items():
        for value in (0, 1, 2, 3, 5, 0x7F, 0xFF):
            over = value * factor  # about when the timer expires
            if over > 18000:
                continue
            for edge in {0, factor, over, over + factor, over + 256, over + 256 * 2}:
                for near in range(-24, 25, 1 if factor < 1024 else 2):
                    cases.append((register, value, edge + near))
    for register, value, cycles in draws.sample(cases, 2500):
        loops = max(0, cycles - 30) // 256
        rest = max(2, min(80, cycles - 256 * loops - 20))
        first, second = (0x284, 0x285) if draws.random() < 0.5 else (0x285, 0x284)
        cells = {VALUE: value, LOOPS: loops, GO: 0x5A, SHAPE: draws.choice([0, 1, value, 200])}
        for at, pointer in ((WAIT, waited - rest), (READ_AT, first), (READ_AT + 0x20, second), (WRITE_TO, register)):
            cells |= {at: pointer & 0xFF, at + 1: pointer >> 8}
        pair.set_ram(cells)
        pair.frame()
        if said := pair.difference():
            wrong.append(f"TIM{FACTORS[register]}T = {value}, read from about {cycles} cycles on: {said}")
    assert not wrong, f"{len(wrong)} differ, " + "\n".join(wrong[:8])


PORTS = """
        SEI
        CLD
        LDX #$FF
        TXS
        STX $80
    frame:
        LDA #2
        STA VSYNC
        INC $81
        LDA $81
        STA SWCHA
        STA SWBCNT
        EOR #$5A
        STA SWCHB
        STA SWACNT
        LDX #0
    port: LDA $280,X      ; undocumented addresses too: mirrors and write-only registers
        STA $90,X
        INX
        CPX #24
        BNE port
        LDA $81
        STA $1F0          ; the stack is the memory
        EOR #$FF
        STA $DF1
        LDA $5F0
        STA $82
        LDA $9F1
        STA $83
        LDA $3C4          ; the timer's mirror
        STA $84
        LDA #33
        STA $3F6
        LDA $2E4
        STA $85
        STA WSYNC
        STA WSYNC
        LDA #0
        STA VSYNC
        JMP frame
"""


@pytest.mark.parametrize("device", DEVICES)
def test_ports_and_mirrors_equal_ale(device: str, tmp_path: Path) -> None:
    pair = Pair(assemble(PORTS), tmp_path, device)
    for _ in range(256):
        pair.frame()
        assert not pair.difference()
    ours = pair.rams()[1].tolist()
    assert ours[2] == ours[1] and ours[3] == ours[1] ^ 0xFF and ours[0x10] == 0xFF
    assert ours[0x11] == ours[1] ^ 0x5A and ours[0x13] == 0, (
        "directions of port A are read back, those of port B are not"
    )
    assert ours[5] == 32


UNTOUCHED = """
        SEI
        CLD
    frame:
        LDX #$FF
        TXS
        LDA #2
        STA VSYNC
        STA WSYNC
        STA WSYNC
        STA WSYNC
        LDA #0
        STA VSYNC
        LDX #250
    line: STA WSYNC
        DEX
        BNE line
        DEX
        STX $80
        LDA INTIM
        STA $81
        LDA $285          ; INSTAT
        STA $82
        JMP frame
"""
FRAMES = 112_000  # the number of cycles exceeds 31 bits


@pytest.mark.slow
def test_a_timer_that_is_never_written_keeps_counting(tmp_path: Path) -> None:
    pair = Pair(assemble(UNTOUCHED), tmp_path)
    for _ in range(FRAMES):
        pair.ale.act(0)
    pair.emulator.step([0], FRAMES, 0)
    assert pair.ale.getFrameNumber() == FRAMES
    ale, ours = pair.rams()
    assert ours.tolist() == ale.tolist()


AT_START = """
        LDA INTIM
        STA $81
        LDA #128         ; the game that ALE expects is not over
        STA $80
    frame:
        LDA #2
        STA VSYNC
        STA WSYNC
        STA WSYNC
        STA WSYNC
        LDA #0
        STA VSYNC
        LDX #200
    line: STA WSYNC
        DEX
        BNE line
        JMP frame
"""


@pytest.mark.slow
def test_the_timer_at_many_starts_of_a_console_equals_ale(tmp_path: Path) -> None:
    pair = Pair(assemble(AT_START), tmp_path)
    for start in range(2, 700):
        pair.ale.reset_game()
        pair.emulator.reset()
        theirs, ours = pair.rams()
        assert theirs[1] == ours[1], start
