"""The processor: cycles as they are documented, results beside a reference and, of all opcodes, beside ALE."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from assembler import OPCODES, Opcode, assemble, frames
from devices import DEVICES
from side_by_side import Pair
from sweep import delay

N, V, B, D, I, Z, C = 0x80, 0x40, 0x30, 8, 4, 2, 1  # noqa: E741 flags, B with the bit that is always set

# --- cycles ----------------------------------------------------------------------------------------------------------

START, RESULTS, MOST_RESULTS = 250, 0x90, 96  # of the timer, and where what it has in the end is kept
LONGER = 0xA7  # LAX of the zero page takes 4 cycles in ALE, and 3 elsewhere
POINTERS = "LDA #$80\nSTA $84\nLDA #$FE\nSTA $86\nLDA #0\nSTA $85\nSTA $87\n"  # to $0080, and to $00FE
CROSSES = {
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
    code: str  # from the timer's start to the read of it
    before: str = ""


def timed_cases() -> list[Timed]:
    cases = []
    for op in OPCODES:
        name = f"{op.code:02X} {op.name} {op.mode}"
        operands = {"#": ["$00"], "z": ["$8E"], "zx": ["$80", "$9E"], "zy": ["$80", "$9E"], "a": ["$8E, $00"],
                    "(x": ["$80"]}.get(op.mode, [""])  # fmt: skip
        indices = {"zx": [0x0E, 0xF0], "zy": [0x0E, 0xF0], "(x": [4]}.get(op.mode, [0x0E])
        extra = [0] * len(operands)
        if op.mode in ("ax", "ay", "(y"):  # of $0080 + $0E, and of $00FE + $90, which is memory too
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
            for flags, more in zip(CROSSES[op.name], (1, 0), strict=True):
                before = f"LDA #{flags}\nPHA\n"  # they are pulled at the last
                cases.append(
                    Timed(f"{op.name} {'not ' * (1 - more)}taken", op.cycles + more, f"{op.name} @to\n@to:", before)
                )
    return cases


TO_INTERRUPT = "LDA #<@to\nSTA $8A\nLDA #>@to\nSTA $8B\n"  # where BRK leads to
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
    """Do these in every frame; ``@`` in each is a name of its own, and ``RESULT`` a byte of its own."""
    told = "".join(
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
            {told}
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
    """What they leave, ALE's and ours."""
    pair = Pair(program(snippets, after), folder, device)
    pair.frame()
    theirs, ours = (ram[RESULTS - 128 :][: len(snippets)].astype(int) for ram in pair.rams())
    return theirs, ours


@pytest.mark.parametrize("device", DEVICES)
def test_every_opcode_takes_the_cycles_that_are_documented(device: str, tmp_path: Path) -> None:
    cases = timed_cases()
    assert len(cases) > 300
    took: dict[str, tuple[int, int, int]] = {}
    for k in range(0, len(cases), MOST_RESULTS):
        some = cases[k : k + MOST_RESULTS]
        snippets = [
            f"{case.before}LDA #{START}\n{'PLP' if 'taken' in case.name else ''}\nSTA TIM1T\n{case.code}\n"
            f"{'' if 'BRK' in case.name else 'LDA INTIM'}\nSTA RESULT"  # of BRK it is read where that leads to
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
    for k, (name, (flags, _)) in enumerate(CROSSES.items()):
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


# --- flow ------------------------------------------------------------------------------------------------------------

FLOW = {  # a program, and what it leaves
    "JMP (xxFF) takes its high byte from the page's beginning": ("JMP ($FAFF)\n@on: STA RESULT", 1),
    "JSR pushes the address of its last byte": ("JSR @to\n@to: PLA\nSEC\nSBC #<@to\nSTA RESULT", 0xFF),
    "BRK pushes the address after next": (TO_INTERRUPT + "@at: BRK\nNOP\n@to: PLA\nPLA\nSEC\nSBC #<@at\nSTA RESULT", 2),
    "BRK pushes B": (TO_INTERRUPT + "LDA #$C3\nPHA\nPLP\nBRK\n@to: PLA\nSTA RESULT", 0xC3 | B),
    "PHP pushes B": ("LDA #$C3\nPHA\nPLP\nPHP\nPLA\nSTA RESULT", 0xC3 | B),
    "RTI brings the flags back": (TO + "LDA #$C3\nPHA\nRTI\n@to: PHP\nPLA\nSTA RESULT", 0xC3 | B),
    "BRK sets I": (TO_INTERRUPT + "CLI\nBRK\n@to: PHP\nPLA\nAND #4\nSTA RESULT\nSEI", I),
}  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
def test_jumps_calls_and_interruptions(device: str, tmp_path: Path) -> None:
    # The pointer at $FAFF, $FA00 is to $F950; what would be taken from $FB00 is to nowhere.
    code, expected = zip(*FLOW.values(), strict=True)
    after = ".org $FA00\n.byte $F9\n.org $FAFF\n.byte $50, $FF\n"
    theirs, ours = results(list(code), tmp_path, device, ".org $F950\nLDA #1\nJMP l0_on\n" + after)
    assert theirs.tolist() == ours.tolist() == list(expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("code", [op.code for op in OPCODES if op.name == "JAM"])
def test_what_stops_the_processor_stops_it_for_ever(code: int, device: str, tmp_path: Path) -> None:
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


# --- results ---------------------------------------------------------------------------------------------------------

SETS = 15  # of registers and memory, that an opcode is tried with in one frame
FIELDS = {name: 0x81 + SETS * k for k, name in enumerate("AXYPMS")}
STUB, SLOT, KEPT, GO, CELL, POINTER = 0xDB, 0xE1, 0xE2, 0xE6, 0xEA, 0xEC
BACK = 0xF800  # where the program goes on after the opcode
BENCH = f"""
        SEI
        CLD
    frame:
        LDX #$FF
        TXS
        STX $80
        LDA #2
        STA VSYNC
        LDA {GO}
        CMP #$5A          ; at first the memory holds anything
        BNE end
        LDX #{SETS - 1}
    next: STX {SLOT}
        TXA
        TAY
        LDX {FIELDS["S"]},Y
        TXS
        LDA {FIELDS["M"]},Y
        STA {CELL}
        LDA {FIELDS["P"]},Y
        PHA
        LDA {FIELDS["Y"]},Y
        STA {KEPT}
        LDX {FIELDS["X"]},Y
        LDA {FIELDS["A"]},Y
        LDY {KEPT}
        PLP
        JMP {STUB}
    back: STA {KEPT}
        STX {KEPT + 1}
        STY {KEPT + 2}
        PHP
        PLA
        CLD
        LDY {SLOT}
        STA {FIELDS["P"]},Y
        LDA {KEPT}
        STA {FIELDS["A"]},Y
        LDA {KEPT + 1}
        STA {FIELDS["X"]},Y
        LDA {KEPT + 2}
        STA {FIELDS["Y"]},Y
        TSX
        TXA
        STA {FIELDS["S"]},Y
        LDA {CELL}
        STA {FIELDS["M"]},Y
        TYA
        TAX
        DEX
        BPL next
    end: LDX #$FF
        TXS
        LDA #0
        STA {GO}
        STA WSYNC
        STA WSYNC
        STA VSYNC
        JMP frame
        .org {BACK}
        JMP back
"""
TELLING = [0x00, 0x01, 0x09, 0x0A, 0x0F, 0x10, 0x19, 0x50, 0x7F, 0x80, 0x81, 0x90, 0x99, 0x9A, 0xA0, 0xF0, 0xFE, 0xFF]
FLOWING = {"BRK", "JSR", "JMP", "RTS", "RTI", "JAM"}


def reference(op: Opcode, a: int, x: int, y: int, p: int, m: int, s: int) -> dict[str, int] | None:
    """What a documented opcode leaves, as MOS's manual has it; of decimal sums the digits and the carry."""
    name, out = op.name, {"A": a, "X": x, "Y": y, "P": p | B, "M": m, "S": s}

    def flags(value: int, also: int = 0, kept: int = 0xFF) -> None:
        out["P"] = out["P"] & kept & ~(N | Z) | value & N | Z * (value == 0) | also

    if name in ("LDA", "LDX", "LDY"):
        out[name[2]] = m
        flags(m)
    elif name in ("STA", "STX", "STY"):
        out["M"] = out[name[2]]
    elif name in ("AND", "ORA", "EOR"):
        out["A"] = {"AND": a & m, "ORA": a | m, "EOR": a ^ m}[name]
        flags(out["A"])
    elif name in ("CMP", "CPX", "CPY"):
        register = {"CMP": a, "CPX": x, "CPY": y}[name]
        flags(register - m & 0xFF, C * (register >= m), ~C)
    elif name == "BIT":
        out["P"] = out["P"] & ~(N | V | Z) | m & (N | V) | Z * (a & m == 0)
    elif name in ("ASL", "ROL", "LSR", "ROR"):
        value = a if op.mode == "." else m
        shifted = value << 1 | (p & C if name == "ROL" else 0) if name in ("ASL", "ROL") else value >> 1
        if name == "ROR":
            shifted |= (p & C) << 7
        flags(shifted & 0xFF, value >> 7 if name in ("ASL", "ROL") else value & 1, ~C)
        out["A" if op.mode == "." else "M"] = shifted & 0xFF
    elif name in ("INC", "DEC", "INX", "DEX", "INY", "DEY"):
        to = "M" if name[2] == "C" else name[2]
        out[to] = out[to] + (1 if name[0] == "I" else -1) & 0xFF
        flags(out[to])
    elif name in ("TAX", "TAY", "TXA", "TYA", "TSX", "TXS"):
        out[name[2]] = out[name[1]]
        if name != "TXS":
            flags(out[name[2]])
    elif name in ("CLC", "CLD", "CLI", "CLV"):
        out["P"] &= ~{"C": C, "D": D, "I": I, "V": V}[name[2]]
    elif name in ("SEC", "SED", "SEI"):
        out["P"] |= {"C": C, "D": D, "I": I}[name[2]]
    elif name in ("ADC", "SBC"):
        decimal, digits = p & D, [a >> 4, a & 15, m >> 4, m & 15]
        other = m if name == "ADC" else m ^ 0xFF
        total = a + other + (p & C)
        overflow = V * (~(a ^ other) & (a ^ total) & 0x80 != 0)
        out["A"] = total & 0xFF
        flags(out["A"], overflow | total >> 8, ~(V | C))
        if decimal:
            if max(digits) > 9:
                return None  # documented of none
            one, two = 10 * digits[0] + digits[1], 10 * digits[2] + digits[3]
            number = one + two + (p & C) if name == "ADC" else one - two - 1 + (p & C)
            out["A"] = number % 100 // 10 << 4 | number % 10
            out["P"] = C * (number > 99 if name == "ADC" else number >= 0)
    elif name != "NOP":
        return None  # of the stack, whose memory is not here
    return out


def tried(op: Opcode, draws: random.Random, decimal: bool) -> tuple[dict[int, int], list[dict[str, int]]]:
    """The memory in which ``op`` is tried with ``SETS`` registers, and those."""
    value = lambda: draws.choice(TELLING) if draws.random() < 0.5 else draws.randrange(256)  # noqa: E731
    sets = []
    for _ in range(SETS):
        one = {name: value() for name in "AXYPM"}
        one["P"] = one["P"] & ~D | D * decimal | 0x30
        one["S"] = draws.randrange(0xF9, 0xFE)
        if op.name == "TAS":  # what becomes the stack's pointer has to be in the stack
            one["A"], one["X"] = 0xFF, draws.randrange(0xF9, 0xFE)
        if op.name == "LAS":
            one["M"], one["S"] = draws.randrange(0xF8, 0x100) | 8, 0xFB
        if op.name == "TXS":
            one["X"] = draws.randrange(0xF9, 0xFE)
        sets.append(one)
    index = draws.choice(TELLING)
    for one in sets:  # what an address is made of is the same in all
        if op.mode in ("zx", "ax", "(x"):
            one["X"] = index
        if op.mode in ("zy", "ay", "(y"):
            one["Y"] = index
        if op.mode == "#":
            one["M"] = sets[0]["M"]
    base = CELL - index & 0xFFFF
    operand = {"#": sets[0]["M"], "z": CELL, "a": CELL, "ax": base, "ay": base, "zx": base & 0xFF, "zy": base & 0xFF,
               "(x": POINTER - index & 0xFF, "(y": POINTER}.get(op.mode, 0)  # fmt: skip
    pointed = base if op.mode == "(y" else CELL
    code = [*[op.code, operand & 0xFF, operand >> 8][: op.length], 0x4C, BACK & 0xFF, BACK >> 8]
    cells = {STUB + k: byte for k, byte in enumerate(code)}
    cells |= {POINTER: pointed & 0xFF, POINTER + 1: pointed >> 8, GO: 0x5A}
    for name, at in FIELDS.items():
        cells |= {at + k: one[name] for k, one in enumerate(sets)}
    return cells, sets


@pytest.mark.parametrize("device", DEVICES)
def test_every_opcode_does_what_is_documented_and_what_ale_does(device: str, tmp_path: Path) -> None:
    pair, draws = Pair(assemble(BENCH), tmp_path, device), random.Random(0)
    wrong: dict[str, str] = {}
    checked = 0
    for op in OPCODES:
        if op.name in FLOWING or op.mode == "r":
            continue
        for round_ in range(100 if (op.name, op.mode) in (("ADC", "#"), ("SBC", "#"), ("ARR", "#")) else 8):
            cells, sets = tried(op, draws, decimal=bool(round_ % 2))
            pair.set_ram(cells)
            pair.frame()
            theirs, ours = pair.rams()
            for k, before in enumerate(sets):
                left = {name: int(ours[at - 128 + k]) for name, at in FIELDS.items()}
                also = {name: int(theirs[at - 128 + k]) for name, at in FIELDS.items()}
                said = f"{before} ours {left} ALE's {also}"
                name = f"{op.code:02X} {op.name} {op.mode} {'decimal' * (round_ % 2)}"
                if left != also:
                    wrong.setdefault(f"{name}, ALE", said)
                right = reference(op, *(before[name] for name in "AXYPMS")) if op.documented else None
                if right:
                    checked += 1
                    if op.mode == "#":
                        right["M"] = left["M"]
                    if before["P"] & D and op.name in ("ADC", "SBC"):
                        left["P"] &= C
                    if left != right:
                        wrong.setdefault(f"{name}, documented", f"{said} documented {right}")
            if (theirs != ours).any() and not any(key.startswith(f"{op.code:02X}") for key in wrong):
                wrong[f"{op.code:02X} {op.name} {op.mode}, elsewhere"] = pair.difference()
    assert not wrong, "\n".join(f"{key}: {said}" for key, said in wrong.items())
    assert checked > 10000


# Two players that meet in the line after the one that this begins, and cross the middle of the picture.
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
def test_a_pointer_is_read_when_its_instruction_ends(opcode: int, device: str, tmp_path: Path) -> None:
    """As in ALE; that the two players meet, in the cycle of one of these waits, changes where it points to.

    So is a value (A7), with whose instruction ALE takes a cycle longer than a 6502.
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
def test_where_a_jump_goes_to_is_read_when_it_ends(jump: str, to: int, stack: int, device: str, tmp_path: Path) -> None:
    """From the register that tells whether the players have met: if so to the memory, and from there back."""
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
