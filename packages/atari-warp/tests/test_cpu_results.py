"""Processor: results of all opcodes, compared with ALE, and of documented ones with a reference."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from assembler import OPCODES, Opcode, assemble
from devices import DEVICES
from side_by_side import Pair

N, V, B, D, I, Z, C = 0x80, 0x40, 0x30, 8, 4, 2, 1  # noqa: E741 flags; B with the bit that is always set
SETS = 15  # sets of registers and memory that an opcode is tried with in a frame
FIELDS = {name: 0x81 + SETS * k for k, name in enumerate("AXYPMS")}
STUB, SLOT, KEPT, GO, CELL, POINTER = 0xDB, 0xE1, 0xE2, 0xE6, 0xEA, 0xEC
BACK = 0xF800  # address after the opcode
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
        CMP #$5A          ; the memory is random at first
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
EDGES = [
    0x00, 0x01, 0x09, 0x0A, 0x0F, 0x10, 0x19, 0x50, 0x7F, 0x80, 0x81, 0x90, 0x99, 0x9A, 0xA0, 0xF0, 0xFE, 0xFF,
]  # fmt: skip
FLOWING = {"BRK", "JSR", "JMP", "RTS", "RTI", "JAM"}


def reference(op: Opcode, a: int, x: int, y: int, p: int, m: int, s: int) -> dict[str, int] | None:
    """Result of a documented opcode, as in MOS's manual; for decimal sums only digits and carry."""
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
                return None  # not documented
            one, two = 10 * digits[0] + digits[1], 10 * digits[2] + digits[3]
            number = one + two + (p & C) if name == "ADC" else one - two - 1 + (p & C)
            out["A"] = number % 100 // 10 << 4 | number % 10
            out["P"] = C * (number > 99 if name == "ADC" else number >= 0)
    elif name != "NOP":
        return None  # opcodes of the stack
    return out


def make_trial(op: Opcode, draws: random.Random, decimal: bool) -> tuple[dict[int, int], list[dict[str, int]]]:
    """Memory for a trial of ``op``, and its ``SETS`` sets of registers."""
    value = lambda: draws.choice(EDGES) if draws.random() < 0.5 else draws.randrange(256)  # noqa: E731
    sets = []
    for _ in range(SETS):
        one = {name: value() for name in "AXYPM"}
        one["P"] = one["P"] & ~D | D * decimal | 0x30
        one["S"] = draws.randrange(0xF9, 0xFE)
        if op.name == "TAS":  # the new stack pointer must point into the stack
            one["A"], one["X"] = 0xFF, draws.randrange(0xF9, 0xFE)
        if op.name == "LAS":
            one["M"], one["S"] = draws.randrange(0xF8, 0x100) | 8, 0xFB
        if op.name == "TXS":
            one["X"] = draws.randrange(0xF9, 0xFE)
        sets.append(one)
    index = draws.choice(EDGES)
    for one in sets:  # all sets share the address
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
def test_results_of_every_opcode_equal_ale_and_the_reference(device: str, tmp_path: Path) -> None:
    pair, draws = Pair(assemble(BENCH), tmp_path, device), random.Random(0)
    wrong: dict[str, str] = {}
    checked = 0
    for op in OPCODES:
        if op.name in FLOWING or op.mode == "r":
            continue
        for round_ in range(100 if (op.name, op.mode) in (("ADC", "#"), ("SBC", "#"), ("ARR", "#")) else 8):
            cells, sets = make_trial(op, draws, decimal=bool(round_ % 2))
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
