"""Processor: cycles and control flow of all opcodes, as documented and as in ALE."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from assembler import OPCODES, assemble, frames
from devices import DEVICES
from side_by_side import Pair
from sweep import delay

N, V, B, I, Z, C = 0x80, 0x40, 0x30, 4, 2, 1  # noqa: E741 flags; B with the bit that is always set

START, RESULTS, MAX_RESULTS = 250, 0x90, 96  # first value of the timer, and where its last values are stored
LONGER = 0xA7  # LAX of the zero page: 4 cycles in ALE, 3 in a 6502
POINTERS = "LDA #$80\nSTA $84\nLDA #$FE\nSTA $86\nLDA #0\nSTA $85\nSTA $87\n"  # pointers to $0080 and $00FE
BRANCH_FLAGS = {  # flags with which a branch is taken, and not taken
    "BPL": (0, N),
    "BMI": (N, 0),
    "BVC": (0, V),
    "BVS": (V, 0),
    "BCC": (0, C),
    "BCS": (C, 0),
    "BNE": (0, Z),
    "BEQ": (Z, 0),
}


@dataclass(frozen=True)
class Timed:
    name: str
    cycles: int
    code: str  # between the start of the timer and its read
    before: str = ""


def timed_cases() -> list[Timed]:
    cases = []
    for op in OPCODES:
        name = f"{op.code:02X} {op.name} {op.mode}"
        operands = {"#": ["$00"], "z": ["$8E"], "zx": ["$80", "$9E"], "zy": ["$80", "$9E"], "a": ["$8E, $00"],
                    "(x": ["$80"]}.get(op.mode, [""])  # fmt: skip
        indices = {"zx": [0x0E, 0xF0], "zy": [0x0E, 0xF0], "(x": [4]}.get(op.mode, [0x0E])
        extra = [0] * len(operands)
        if op.mode in ("ax", "ay", "(y"):  # $0080 + $0E, and $00FE + $90 on the next page, which is memory too
            operands = ["$84", "$86"] if op.mode == "(y" else ["$80, $00", "$FE, $00"]
            indices, extra = [0x0E, 0x90], [0, int(op.crossing)]
        special = SPECIAL.get((op.name, op.mode))
        if op.cycles == 0 or op.mode == "r":
            continue
        for operand, index, more in zip(operands, indices, extra, strict=True):
            code = f".byte {op.code}{', ' if operand else ''}{operand}"
            before = f"LDX #{index}\nLDY #{index}\n"
            if special:
                before, code = special
            cases.append(Timed(f"{name} {operand}", op.cycles + more + (op.code == LONGER), code, before))
    for op in OPCODES:
        if op.mode == "r":
            for flags, more in zip(BRANCH_FLAGS[op.name], (1, 0), strict=True):
                before = f"LDA #{flags}\nPHA\n"  # pulled before the branch
                cases.append(
                    Timed(f"{op.name} {'not ' * (1 - more)}taken", op.cycles + more, f"{op.name} @to\n@to:", before)
                )
    return cases


TO_INTERRUPT = "LDA #<@to\nSTA $8A\nLDA #>@to\nSTA $8B\n"  # target of BRK
TO = "LDA #>@to\nPHA\nLDA #<@to\nPHA\n"
SPECIAL = {
    ("JMP", "a"): ("", "JMP @to\n@to:"),
    ("JMP", "(a"): (TO_INTERRUPT, "JMP ($8A)\n@to:"),
    ("JSR", "a"): ("", "JSR @to\n@to:"),
    ("RTS", "."): (TO.replace("@to", "@to - 1"), "RTS\n@to:"),
    ("RTI", "."): (TO + "PHA\n", "RTI\n@to:"),
    ("BRK", "."): (TO_INTERRUPT, "BRK\n@to:"),
    ("PLP", "."): ("LDA #0\nPHA\n", "PLP"),
    ("TXS", "."): ("LDX #$FF\n", "TXS"),
}  # fmt: skip


def program(snippets: list[str], after: str = "") -> bytes:
    """Program that runs snippets in every frame; ``@`` is a prefix of its own for each, and ``RESULT`` a byte."""
    body = "".join(
        snippet.replace("@", f"l{k}_").replace("RESULT", f"${RESULTS + k:02X}") + "\nLDX #$FF\nTXS\nSTX $80\nCLD\n"
        for k, snippet in enumerate(snippets)
    )
    return assemble(f"""
            SEI
            CLD
            LDX #$FF
            TXS
            STX $80
        frame:
            LDA #2
            STA VSYNC
            {POINTERS}
            {body}
            LDA #0
            STA WSYNC
            STA WSYNC
            STA VSYNC
            JMP frame
        interrupt:
            LDA INTIM
            JMP ($8A)
        {after}
    """)


def results(snippets: list[str], folder: Path, device: str, after: str = "") -> tuple[np.ndarray, np.ndarray]:
    """Results of snippets in ALE and in the emulator, ``(snippets,) int`` each."""
    pair = Pair(program(snippets, after), folder, device)
    pair.frame()
    theirs, ours = (ram[RESULTS - 128 :][: len(snippets)].astype(int) for ram in pair.rams())
    return theirs, ours


@pytest.mark.parametrize("device", DEVICES)
def test_every_opcode_takes_the_documented_cycles(device: str, tmp_path: Path) -> None:
    cases = timed_cases()
    assert len(cases) > 300
    took: dict[str, tuple[int, int, int]] = {}
    for k in range(0, len(cases), MAX_RESULTS):
        some = cases[k : k + MAX_RESULTS]
        snippets = [
            f"{case.before}LDA #{START}\n{'PLP' if 'taken' in case.name else ''}\nSTA TIM1T\n{case.code}\n"
            f"{'' if 'BRK' in case.name else 'LDA INTIM'}\nSTA RESULT"  # BRK's target reads the timer
            for case in some
        ]
        theirs, ours = results(snippets, tmp_path, device)
        took |= {
            case.name: (case.cycles, START - 4 - int(t), START - 4 - int(o))
            for case, t, o in zip(some, theirs, ours, strict=True)
        }
    assert {name: cycles for name, cycles in took.items() if len(set(cycles)) > 1} == {}


@pytest.mark.parametrize("device", DEVICES)
def test_a_branch_to_another_page_takes_two_cycles_more(device: str, tmp_path: Path) -> None:
    main, after = [], ""
    for k, (name, (flags, _)) in enumerate(BRANCH_FLAGS.items()):
        main.append(f"JMP there{k}\n@back: STA RESULT")
        after += f"""
            .org {0xF5F8 + 256 * k}
            there{k}: PLP
            STA TIM1T
            {name} to{k}
            NOP
            NOP
            to{k}: LDA INTIM
            JMP l{k}_back
        """
        main[-1] = f"LDA #{flags}\nPHA\nLDA #{START}\n{main[-1]}"
    theirs, ours = results(main, tmp_path, device, after)
    assert (START - 4 - theirs).tolist() == (START - 4 - ours).tolist() == [4] * 8


FLOW = {  # a program and its result
    "JMP (xxFF) reads its high byte from the beginning of the page": ("JMP ($FAFF)\n@on: STA RESULT", 1),
    "JSR pushes the address of its last byte": ("JSR @to\n@to: PLA\nSEC\nSBC #<@to\nSTA RESULT", 0xFF),
    "BRK pushes the address after next": (TO_INTERRUPT + "@at: BRK\nNOP\n@to: PLA\nPLA\nSEC\nSBC #<@at\nSTA RESULT", 2),
    "BRK pushes B": (TO_INTERRUPT + "LDA #$C3\nPHA\nPLP\nBRK\n@to: PLA\nSTA RESULT", 0xC3 | B),
    "PHP pushes B": ("LDA #$C3\nPHA\nPLP\nPHP\nPLA\nSTA RESULT", 0xC3 | B),
    "RTI brings the flags back": (TO + "LDA #$C3\nPHA\nRTI\n@to: PHP\nPLA\nSTA RESULT", 0xC3 | B),
    "BRK sets I": (TO_INTERRUPT + "CLI\nBRK\n@to: PHP\nPLA\nAND #4\nSTA RESULT\nSEI", I),
}  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
def test_jumps_calls_and_interrupts(device: str, tmp_path: Path) -> None:
    # The pointer at $FAFF and $FA00 has $F950; with the byte at $FB00 it would have another address.
    code, expected = zip(*FLOW.values(), strict=True)
    after = ".org $FA00\n.byte $F9\n.org $FAFF\n.byte $50, $FF\n"
    theirs, ours = results(list(code), tmp_path, device, ".org $F950\nLDA #1\nJMP l0_on\n" + after)
    assert theirs.tolist() == ours.tolist() == list(expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("code", [op.code for op in OPCODES if op.name == "JAM"])
def test_a_jam_stops_the_processor_for_ever(code: int, device: str, tmp_path: Path) -> None:
    jams = f"LDA $81\nCMP #$5A\nBNE @on\n.byte {code}\n@on: INC $82"
    pair = Pair(program([jams]), tmp_path, device)
    pair.frame()
    assert not pair.difference()
    before = pair.rams()[0][2]
    pair.set_ram({0x81: 0x5A})
    for _ in range(3):
        pair.frame()
        assert not pair.difference()
    assert pair.rams()[0][2] == before


# Two players that collide in the next line, across the middle of the picture.
MEETING = f"""
    LDA #7
    STA NUSIZ0
    STA NUSIZ1
    LDA #$FF
    STA GRP0
    STA GRP1
    STA WSYNC
    {delay(30)}
    STA RESP0
    STA RESP1
"""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("opcode", [0xA1, 0xB1, 0xD1, 0x03, 0xA7])
def test_a_pointer_is_read_in_the_last_cycle(opcode: int, device: str, tmp_path: Path) -> None:
    """The pointer has a collision register, which changes at one of these delays, as in ALE.

    Opcode A7 reads a value instead, in a cycle that a 6502 does not have.
    """
    code = "".join(
        f"STA WSYNC\nSTA CXCLR\nLDA #$37\nLDY #3\n{delay(18 + k)}LDX #0\n.byte {opcode}, $27\nPHP\nSTA ${0xA0 + k:X}\n"
        f"PLA\nSTA ${0xC0 + k:X}\n"
        for k in range(12)
    )
    pair = Pair(assemble(frames(MEETING + code)), tmp_path, device)
    pair.frame()
    assert not pair.difference()
    seen = pair.rams()[0]
    assert len({(seen[0x20 + k], seen[0x40 + k]) for k in range(12)}) > 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("jump", "to", "stack"),
    [("6C 37 04", 0x84, 0xFF), ("60", 0xA1, 0x36), ("40", 0x80, 0x35)],
    ids=["JMP", "RTS", "RTI"],
)
def test_the_target_of_a_jump_is_read_in_the_last_cycle(
    jump: str, to: int, stack: int, device: str, tmp_path: Path
) -> None:
    """The target depends on a collision register: after a collision it is in memory, from where it leads back."""
    met = []
    for wait in range(26, 34):
        code = f"""
            LDA #$4C
            STA ${to:X}
            LDA #<back
            STA ${to + 1:X}
            LDA #>back
            STA ${to + 2:X}
            LDX #${stack:X}
            TXS
            STA WSYNC
            STA CXCLR
            {delay(wait)}
            .byte {", ".join("$" + byte for byte in jump.split())}
            back: LDA #$A5
            STA $F0
            LDX #$FF
            TXS
        """
        pair = Pair(assemble(frames(MEETING + code)), tmp_path, device)
        pair.frame()
        theirs, ours = (int(ram[0xF0 - 128]) == 0xA5 for ram in pair.rams())
        assert theirs == ours, wait
        assert not theirs or not pair.difference()
        met.append(theirs)
    assert not met[0] and met[-1]
