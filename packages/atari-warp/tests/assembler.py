"""Assembler for the console's 6507: mnemonics and labels to the 4 KiB of a cartridge."""

from __future__ import annotations

import re
from dataclasses import dataclass

ORIGIN, SIZE = 0xF000, 4096
LINE = 76  # cycles


@dataclass(frozen=True)
class Opcode:
    code: int
    name: str
    mode: (
        str  # "." implied, "#" immediate, "z" zero page, "a" absolute; with "x", "y": indexed; "(" indirect, "r" branch
    )
    cycles: int  # 0: it stops the processor
    crossing: bool  # one cycle more if the address, with its index, is on another page
    documented: bool

    @property
    def length(self) -> int:
        return {".": 1, "a": 3, "ax": 3, "ay": 3, "(a": 3}.get(self.mode, 2)


# Name, mode and cycles of each opcode as documented, or (*) as commonly described. "+": one more cycle across a page. A
# branch that is taken needs one more cycle, and another one across a page.
TABLE = """
BRK:.:7   ORA:(x:6  *JAM:.:0  *SLO:(x:8 *NOP:z:3  ORA:z:3  ASL:z:5  *SLO:z:5
PHP:.:3   ORA:#:2   ASL:.:2   *ANC:#:2  *NOP:a:4  ORA:a:4  ASL:a:6  *SLO:a:6
BPL:r:2+  ORA:(y:5+ *JAM:.:0  *SLO:(y:8 *NOP:zx:4 ORA:zx:4 ASL:zx:6 *SLO:zx:6
CLC:.:2   ORA:ay:4+ *NOP:.:2  *SLO:ay:7 *NOP:ax:4+ ORA:ax:4+ ASL:ax:7 *SLO:ax:7
JSR:a:6   AND:(x:6  *JAM:.:0  *RLA:(x:8 BIT:z:3   AND:z:3  ROL:z:5  *RLA:z:5
PLP:.:4   AND:#:2   ROL:.:2   *ANC:#:2  BIT:a:4   AND:a:4  ROL:a:6  *RLA:a:6
BMI:r:2+  AND:(y:5+ *JAM:.:0  *RLA:(y:8 *NOP:zx:4 AND:zx:4 ROL:zx:6 *RLA:zx:6
SEC:.:2   AND:ay:4+ *NOP:.:2  *RLA:ay:7 *NOP:ax:4+ AND:ax:4+ ROL:ax:7 *RLA:ax:7
RTI:.:6   EOR:(x:6  *JAM:.:0  *SRE:(x:8 *NOP:z:3  EOR:z:3  LSR:z:5  *SRE:z:5
PHA:.:3   EOR:#:2   LSR:.:2   *ALR:#:2  JMP:a:3   EOR:a:4  LSR:a:6  *SRE:a:6
BVC:r:2+  EOR:(y:5+ *JAM:.:0  *SRE:(y:8 *NOP:zx:4 EOR:zx:4 LSR:zx:6 *SRE:zx:6
CLI:.:2   EOR:ay:4+ *NOP:.:2  *SRE:ay:7 *NOP:ax:4+ EOR:ax:4+ LSR:ax:7 *SRE:ax:7
RTS:.:6   ADC:(x:6  *JAM:.:0  *RRA:(x:8 *NOP:z:3  ADC:z:3  ROR:z:5  *RRA:z:5
PLA:.:4   ADC:#:2   ROR:.:2   *ARR:#:2  JMP:(a:5  ADC:a:4  ROR:a:6  *RRA:a:6
BVS:r:2+  ADC:(y:5+ *JAM:.:0  *RRA:(y:8 *NOP:zx:4 ADC:zx:4 ROR:zx:6 *RRA:zx:6
SEI:.:2   ADC:ay:4+ *NOP:.:2  *RRA:ay:7 *NOP:ax:4+ ADC:ax:4+ ROR:ax:7 *RRA:ax:7
*NOP:#:2  STA:(x:6  *NOP:#:2  *SAX:(x:6 STY:z:3   STA:z:3  STX:z:3  *SAX:z:3
DEY:.:2   *NOP:#:2  TXA:.:2   *ANE:#:2  STY:a:4   STA:a:4  STX:a:4  *SAX:a:4
BCC:r:2+  STA:(y:6  *JAM:.:0  *SHA:(y:6 STY:zx:4  STA:zx:4 STX:zy:4 *SAX:zy:4
TYA:.:2   STA:ay:5  TXS:.:2   *TAS:ay:5 *SHY:ax:5 STA:ax:5 *SHX:ay:5 *SHA:ay:5
LDY:#:2   LDA:(x:6  LDX:#:2   *LAX:(x:6 LDY:z:3   LDA:z:3  LDX:z:3  *LAX:z:3
TAY:.:2   LDA:#:2   TAX:.:2   *LXA:#:2  LDY:a:4   LDA:a:4  LDX:a:4  *LAX:a:4
BCS:r:2+  LDA:(y:5+ *JAM:.:0  *LAX:(y:5+ LDY:zx:4 LDA:zx:4 LDX:zy:4 *LAX:zy:4
CLV:.:2   LDA:ay:4+ TSX:.:2   *LAS:ay:4+ LDY:ax:4+ LDA:ax:4+ LDX:ay:4+ *LAX:ay:4+
CPY:#:2   CMP:(x:6  *NOP:#:2  *DCP:(x:8 CPY:z:3   CMP:z:3  DEC:z:5  *DCP:z:5
INY:.:2   CMP:#:2   DEX:.:2   *SBX:#:2  CPY:a:4   CMP:a:4  DEC:a:6  *DCP:a:6
BNE:r:2+  CMP:(y:5+ *JAM:.:0  *DCP:(y:8 *NOP:zx:4 CMP:zx:4 DEC:zx:6 *DCP:zx:6
CLD:.:2   CMP:ay:4+ *NOP:.:2  *DCP:ay:7 *NOP:ax:4+ CMP:ax:4+ DEC:ax:7 *DCP:ax:7
CPX:#:2   SBC:(x:6  *NOP:#:2  *ISB:(x:8 CPX:z:3   SBC:z:3  INC:z:5  *ISB:z:5
INX:.:2   SBC:#:2   NOP:.:2   *SBC:#:2  CPX:a:4   SBC:a:4  INC:a:6  *ISB:a:6
BEQ:r:2+  SBC:(y:5+ *JAM:.:0  *ISB:(y:8 *NOP:zx:4 SBC:zx:4 INC:zx:6 *ISB:zx:6
SED:.:2   SBC:ay:4+ *NOP:.:2  *ISB:ay:7 *NOP:ax:4+ SBC:ax:4+ INC:ax:7 *ISB:ax:7
""".split()


def _opcode(code: int, cell: str) -> Opcode:
    name, mode, cycles = cell.split(":")
    return Opcode(code, name.strip("*"), mode, int(cycles.strip("+")), cycles.endswith("+"), name[0] != "*")


OPCODES = [_opcode(code, cell) for code, cell in enumerate(TABLE)]
BY_NAME = {(op.name, op.mode): op for op in sorted(OPCODES, key=lambda op: op.documented)}

TIA = """VSYNC VBLANK WSYNC RSYNC NUSIZ0 NUSIZ1 COLUP0 COLUP1 COLUPF COLUBK CTRLPF REFP0 REFP1 PF0 PF1 PF2 RESP0 RESP1
RESM0 RESM1 RESBL AUDC0 AUDC1 AUDF0 AUDF1 AUDV0 AUDV1 GRP0 GRP1 ENAM0 ENAM1 ENABL HMP0 HMP1 HMM0 HMM1 HMBL VDELP0 VDELP1
VDELBL RESMP0 RESMP1 HMOVE HMCLR CXCLR""".split()
TIA_READ = "CXM0P CXM1P CXP0FB CXP1FB CXM0FB CXM1FB CXBLPF CXPPMM INPT0 INPT1 INPT2 INPT3 INPT4 INPT5".split()
RIOT = {"SWCHA": 0x280, "SWACNT": 0x281, "SWCHB": 0x282, "SWBCNT": 0x283, "INTIM": 0x284, "INSTAT": 0x285,
        "TIM1T": 0x294, "TIM8T": 0x295, "TIM64T": 0x296, "T1024T": 0x297}  # fmt: skip
REGISTERS = {name: at for names in (TIA, TIA_READ) for at, name in enumerate(names)} | RIOT

# Forms of operands, with their modes in the zero page and outside. A "!" before a value makes it absolute.
FORMS = [
    (r"#(.+)", "#", "#"),
    (r"\((.+),X\)", "(x", "(x"),
    (r"\((.+)\),Y", "(y", "(y"),
    (r"\((.+)\)", "(a", "(a"),
    (r"(.+),X", "zx", "ax"),
    (r"(.+),Y", "zy", "ay"),
    (r"(.+)", "z", "a"),
]


def assemble(source: str, **names: int) -> bytes:
    """Return the cartridge of a program, which starts at its first line.

    A line is ``label:``, ``name = value``, ``.byte values``, ``.word values``, ``.org address`` or an instruction; `;`
    starts a comment. Values are sums of numbers (``$F0``, ``12``), names and labels; ``<`` and ``>`` take their low and
    high byte.
    """
    known: dict[str, int] = _Guesses({**REGISTERS, **names})
    for run in range(3):  # later labels are known in the second pass, and values made of them in the third
        known = dict(known) if run == 2 else known
        image = bytearray(b"\xea" * SIZE)
        at = ORIGIN
        for line in source.splitlines():
            text = line.partition(";")[0].strip()
            if found := re.match(r"(\w+):\s*", text):
                known[found[1]] = at
                text = text[found.end() :]
            if found := re.fullmatch(r"(\w+)\s*=\s*(.+)", text):
                known[found[1]] = _value(found[2], known)
            elif text.startswith(".org"):
                at = _value(text[4:], known)
            elif text:
                code = _bytes(text, at, known)
                if at + len(code) > ORIGIN + SIZE - 6:
                    raise ValueError(f"{line.strip()}: is beyond the end of the cartridge")
                image[at - ORIGIN : at - ORIGIN + len(code)] = code
                at += len(code)
    interrupt = known.get("interrupt", ORIGIN)
    image[-6:] = b"".join(address.to_bytes(2, "little") for address in (ORIGIN, ORIGIN, interrupt))
    return bytes(image)


class _Guesses(dict[str, int]):
    def __missing__(self, name: str) -> int:
        return 0xFFF0  # not in the zero page


def _value(text: str, known: dict[str, int]) -> int:
    text = text.strip()
    if text[0] in "<>":
        return _value(text[1:], known) >> (8 if text[0] == ">" else 0) & 0xFF
    total = 0
    for sign, term in re.findall(r"([+-]?)\s*([$\w]+)", text):
        number = int(term[1:], 16) if term[0] == "$" else int(term) if term[0].isdigit() else known[term]
        total += -number if sign == "-" else number
    return total


def _bytes(text: str, at: int, known: dict[str, int]) -> bytes:
    name, _, operand = text.partition(" ")
    if name in (".byte", ".word"):
        size = 1 if name == ".byte" else 2
        values = (_value(value, known) for value in operand.split(","))
        return b"".join((value & (1 << 8 * size) - 1).to_bytes(size, "little") for value in values)
    operand = operand.strip()
    if not operand:
        return bytes([BY_NAME[name, "."].code])
    if op := BY_NAME.get((name, "r")):
        by = _value(operand, known) - at - 2
        if not isinstance(known, _Guesses) and not -128 <= by < 128:
            raise ValueError(f"{text}: target is {by} bytes away")
        return bytes([op.code, by & 0xFF])
    for form, short, long in FORMS:
        if found := re.fullmatch(form, operand):
            value = _value(found[1].lstrip("!"), known)
            fits = value < 0x100 and found[1][0] != "!" and (name, short) in BY_NAME
            op = BY_NAME[name, short if fits or short == long else long]
            return bytes([op.code]) + (value & 0xFFFF).to_bytes(2, "little")[: op.length - 1]
    raise ValueError(text)


def slide(label: str, most: int) -> str:
    """Code that takes exactly ``n`` cycles when it is entered at ``label - n``, for any ``n`` from 2 to ``most``.

    The code is a chain of comparisons whose operands are comparisons, so two bytes take two cycles from any entry. The
    last instruction takes one cycle more than bytes, so ``label`` is one byte behind the end.
    """
    return f".byte {', '.join(['$C9'] * (most - 3))}\n.byte $C5, $EA\n{label} = {label}_end + 1\n{label}_end:\n"


def lines(number: int, label: str) -> str:
    """Code that waits until ``number`` lines later, and leaves 0 in X."""
    return f"LDX #{number}\n{label}: STA WSYNC\nDEX\nBNE {label}\n"


def frames(visible: str, every_frame: str = "", blank: int = 37, below: int = 8) -> str:
    """Program that draws frames.

    Args:
        visible: code of the visible lines.
        every_frame: code at the beginning of the blank lines.
        blank: lines between VSYNC and the visible lines.
        below: blank lines after the visible ones.
    """
    return f"""
        SEI
        CLD
        LDX #$FF
        TXS
        STX $80          ; the game that ALE expects is not over
    frame:
        LDA #2
        STA VBLANK
        STA VSYNC
        {lines(3, "sync")}
        STX VSYNC
        LDA #{blank * LINE // 64}
        STA TIM64T
        {every_frame}
    above:
        LDA INTIM
        BNE above
        STA WSYNC
        STA VBLANK
        {visible}
        LDA #2
        STA WSYNC
        STA VBLANK
        {lines(below, "under")}
        JMP frame
    """
