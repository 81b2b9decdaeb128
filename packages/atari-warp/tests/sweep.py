"""Programs that try an instruction at every cycle of a line, with many values.

Each case takes a band of the picture. A program counts through its cases, so a frame shows many of them, and neither
console needs any input.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from assembler import LINE, assemble, frames, slide
from side_by_side import Pair

BANDS, BAND_LINES, FIRST_ROW, FIRST_CYCLE = 16, 12, 5, 10
WSYNC = "STA WSYNC\n"

# Registers that are cleared, then colours, positions and shapes of the objects.
CLEARED = """NUSIZ0 NUSIZ1 CTRLPF REFP0 REFP1 PF0 PF1 PF2 GRP0 GRP1 GRP0 ENAM0 ENAM1 ENABL VDELP0 VDELP1 VDELBL RESMP0
RESMP1 HMCLR CXCLR VBLANK""".split()
COLORS = "".join(f"LDA #{color}\nSTA {name}\n" for name, color in
                 (("COLUP0", 0x46), ("COLUP1", 0x84), ("COLUPF", 0xC8), ("COLUBK", 0x02)))  # fmt: skip
APART = "STA RESP0\nSTA RESM0\nNOP\nNOP\nNOP\nSTA RESBL\nNOP\nNOP\nNOP\nSTA RESP1\nSTA RESM1\n"
TOGETHER = "STA RESM0\nSTA RESP1\nSTA RESP0\nSTA RESM1\nSTA RESBL\n"
SHAPES = "LDA #$B5\nSTA GRP0\nLDA #$D3\nSTA GRP1\nLDA #2\nSTA ENAM0\nSTA ENAM1\nSTA ENABL\n"


def delay(cycles: int) -> str:
    """Code that does nothing for 0 cycles, or for 2 or more."""
    return "LDX $80\n" * (cycles % 2) + "NOP\n" * ((cycles - 3 * (cycles % 2)) // 2)


@dataclass(frozen=True)
class Sweep:
    """Cases of one kind, each in a band of the picture.

    Attributes:
        event: code at the cycle that is tried, with ``new`` in A.
        values: pairs of bytes ``old`` and ``new``, or single bytes for both.
        prepare: code some lines earlier, with ``old`` in A; may contain up to two WSYNC.
        line: code at the beginning of the event's line.
        places: code that positions the objects.
    """

    event: str
    values: Sequence[int | tuple[int, int]] = (0,)
    prepare: str = ""
    line: str = ""
    places: str = APART

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return [value if isinstance(value, tuple) else (value, value) for value in self.values]

    def image(self) -> bytes:
        band = f"""
            band:
            STA WSYNC
            LDA #0
            {"".join(f"STA {name}{chr(10)}" for name in CLEARED)}
            STA WSYNC
            {COLORS}
            {self.places}
            STA WSYNC
            LDA #<waited - 2
            SEC
            SBC cycle
            STA wait
            LDA #>waited - 2
            SBC #0
            STA wait + 1
            LDA #<rested - {LINE + 1}
            CLC
            ADC cycle
            STA rest
            LDA #>rested - {LINE + 1}
            ADC #0
            STA rest + 1
            STA WSYNC
            {SHAPES}
            LDY number
            LDA olds,Y
            {self.prepare}
            {WSYNC * (2 - self.prepare.count("WSYNC"))}
            LDY number
            LDA news,Y
            STA WSYNC
            {self.line}
            JMP (wait)
            {slide("waited", LINE + 2)}
            {self.event}
            JMP (rest)
            {slide("rested", LINE + 2)}
            {WSYNC * 3}
            LDX #7
            LDA #0
            fold: ASL
            ADC #0
            EOR CXM0P,X
            DEX
            BPL fold
            LDX band_number
            STA hits,X
            INC cycle
            LDA cycle
            CMP #{LINE}
            BNE counted
            LDA #0
            STA cycle
            INC number
            LDA number
            CMP #{len(self.pairs)}
            BNE counted
            LDA #0
            STA number
            counted:
            INX
            STX band_number
            CPX #{BANDS}
            BEQ bands_end
            JMP band
            bands_end:
            {WSYNC}
        """
        tables = "olds:\n.byte 0\nnews:\n.byte 0\n"
        if self.pairs:
            olds, news = (", ".join(map(str, values)) for values in zip(*self.pairs, strict=True))
            tables = f".org $FC00\nolds:\n.byte {olds}\n.org $FD00\nnews:\n.byte {news}\n"
        start = f"""
            LDA cycle
            CMP #{LINE}
            BCS again
            LDA number
            CMP #{len(self.pairs)}
            BCC go
            again: LDA #0
            STA cycle
            STA number
            go: LDX #0
            STX band_number
        """  # the memory is random at first
        names = {"cycle": 0x81, "number": 0x82, "wait": 0x84, "rest": 0x86, "band_number": 0x88, "hits": 0x90}
        return assemble(frames(band, start) + tables, **names)

    def differences(self, folder: Path, device: str) -> dict[tuple[int, int], list[int]]:
        """Cycles of the cases that differ from ALE, by ``(old, new)``."""
        pair, found = Pair(self.image(), folder, device), defaultdict[tuple[int, int], list[int]](list)
        cases = LINE * len(self.pairs)
        for _ in range(-(-cases // BANDS) + 1):
            memory = pair.rams()[0]
            first = int(memory[1]) + LINE * int(memory[2])
            pair.frame()
            if not pair.difference():
                continue
            (their_ram, our_ram), (theirs, ours) = pair.rams(), pair.screens()
            rows = (theirs != ours).any(axis=1)
            bands = {max(0, min(BANDS - 1, int(row - FIRST_ROW) // BAND_LINES)) for row in np.flatnonzero(rows)}
            bands |= {int(at) - 0x10 for at in np.flatnonzero(their_ram != our_ram)}
            for band in sorted(bands):
                case = (first + band) % cases
                found[self.pairs[case // LINE]].append(case % LINE + FIRST_CYCLE)
        return {values: sorted(set(cycles)) for values, cycles in found.items()}


def describe(found: dict[tuple[int, int], list[int]]) -> str:
    cases = sum(map(len, found.values()))
    lines: Iterable[str] = (f"{old:02X}->{new:02X} at {cycles}" for (old, new), cycles in found.items())
    return f"{cases} cases differ: " + "; ".join(lines)
