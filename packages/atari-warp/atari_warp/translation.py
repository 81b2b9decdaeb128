"""A ROM's code as C++: what the processor does for each instruction, with its address and operands known.

The interpreter of ``native/fast.h`` looks up what to do for each instruction, which is most of what a frame takes on a
CPU. Of a translation the compiler sees whole loops. Where a game goes on at an address that was not translated, the
interpreter does, until a jump.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from atari_warp.games import Game

NATIVE = Path(__file__).parent / "native"
TABLE = {
    int(opcode, 16): text
    for opcode, text in re.findall(r"^OP\(0x(..)\) (.*)$", (NATIVE / "instructions.h").read_text(), re.MULTILINE)
}
CALL, JUMP, BRANCHES = 0x20, 0x4C, {opcode for opcode, text in TABLE.items() if text.startswith("BRANCH")}
NONE = "enum { IS_TRANSLATED = 0 };\nCUDA_CALLABLE i32 translated(i32 left) { return left; }"
# Of what the processor sees of a cartridge: where its ROM begins and ends, less the addresses that switch banks.
BEGINS = {"DPC": 0x80}
ENDS = {"F8": 0xFF8, "DPC": 0xFC0, "F6": 0xFF6, "E0": 0xFE0}


def fast(translation: str = NONE) -> str:
    """``native/fast.h`` with its interpreter and a translation."""
    others = "".join(f"OP(0x{opcode:02x}) " for opcode in range(256) if opcode not in TABLE)
    interpreted = "\n".join(f"OP(0x{opcode:02x}) {text}" for opcode, text in TABLE.items()) + f"\n{others}goto other;"
    text = (NATIVE / "fast.h").read_text()
    return text.replace("@INSTRUCTIONS@", interpreted).replace("@TRANSLATION@", translation)


def translated(game: Game, rom: bytes, trace: np.ndarray) -> str:
    """C++ of the instructions that ``trace`` ``(len(rom),) uint8`` has, for :func:`fast`; see ``Console::trace``."""
    code = Code(game, rom, trace)
    return code.text() if code.addresses else NONE


class Code:
    """Instructions of a ROM by their offsets in it.

    Attributes:
        addresses: at which the processor finds each.
    """

    def __init__(self, game: Game, rom: bytes, trace: np.ndarray):
        self._rom = rom
        scheme = game.cartridge.removesuffix("SC")
        self._begin = 0x100 if game.cartridge.endswith("SC") else BEGINS.get(scheme, 0)
        self._end = ENDS.get(scheme, 0x1000)
        self._window = 0x1C00 if scheme == "E0" else 0xF000  # in which all is of one bank: these bits are the same
        self.addresses: dict[int, int] = {}
        for offset in map(int, np.flatnonzero(trace)):
            seen = int(trace[offset])
            low = (seen >> 3 & 3) << 10 | offset & 0x3FF
            whole = scheme != "E0" or offset & 0x3FF < 0x3FE
            if rom[offset] in TABLE and whole and self._begin <= low < self._end - 2:
                self.addresses[offset] = (seen & 7) << 13 | 0x1000 | low

    def text(self) -> str:
        entries = self._entries()
        lines = [self._instruction(offset) for offset in self.addresses]
        cases = "\n".join(f"case {number}: goto at_{offset};" for number, offset in enumerate(entries, 1))
        numbers = np.zeros(len(self._rom), int)  # a number for each entry: a switch of few, side by side, is one jump
        numbers[entries] = range(1, len(entries) + 1)
        places = [0, *(self.addresses[offset] for offset in entries)]
        size = self._end - self._begin
        return f"""enum {{ IS_TRANSLATED = 1, LONGEST_RUN = {self._longest()} }};
CUDA_CALLABLE APART i32 translated(i32 left) {{
    static const u16 numbers[] = {{{", ".join(map(str, numbers))}}}, places[] = {{{", ".join(map(str, places))}}};
    const u32 rom_first = {0x1000 | self._begin}, rom_size = {size};
    i32 to = this->pc;
    TAKE
find:
    if (!(to & 0x1000) || left <= LONGEST_RUN) goto out;
    {{
        i32 number = numbers[bank[to >> 10 & 3] + (to & 1023)];
        if (places[number] != to) goto out;
        switch (number) {{
            {cases}
            default: goto out;
        }}
    }}
    {"".join(lines)}
out:
    this->pc = to;
    RETURN
}}
"""

    def _instruction(self, offset: int) -> str:
        address = self.addresses[offset]
        opcode, first, second = (*self._rom[offset : offset + 3], 0, 0)[:3]
        follows = address + self._length(offset)
        after = self._offset(offset, follows)
        in_line = after is not None and not any(k in self.addresses for k in range(offset + 1, after))
        going_on = "" if in_line else self._go(offset, follows, jumps=False)
        target = self._target(offset)
        taken = "" if target is None else self._go(offset, target)
        near = target is not None and self._offset(offset, target) is not None
        return f"""at_{offset}: {{
    __label__ next, taken, other;
    enum {{ pc = {address}, OFFSET = {offset}, FIRST = {first}, SECOND = {second}, NEAR = {int(near)} }};
    {TABLE[opcode]}
    other: to = pc; goto out;
    taken: {taken or "goto other;"}
    next: {going_on};
}}
"""

    def _go(self, offset: int, address: int, jumps: bool = True) -> str:
        """Go on at an address; after a jump, if a run of instructions is not too long for this frame."""
        there = self._offset(offset, address)
        if there is None:
            return f"to = {address}; goto find;"
        return (f"if (left <= LONGEST_RUN) {{ to = {address}; goto out; }} " if jumps else "") + f"goto at_{there};"

    def _offset(self, offset: int, address: int) -> int | None:
        """Of the instruction at an address, if it is translated and surely seen there from ``offset``."""
        there = offset + address - self.addresses[offset]
        same = (address ^ self.addresses[offset]) & self._window == 0
        return there if same and self.addresses.get(there) == address else None

    def _target(self, offset: int) -> int | None:
        """Where a branch, a jump or a call leads."""
        opcode, address = self._rom[offset], self.addresses[offset]
        if opcode in BRANCHES:
            return address + 2 + int(np.int8(np.uint8(self._rom[offset + 1])))
        if opcode in (CALL, JUMP):
            return self._rom[offset + 1] | self._rom[offset + 2] << 8
        return None

    def _length(self, offset: int) -> int:
        text = TABLE[self._rom[offset]]
        return 3 if "ABSOLUTE" in text else 2 if re.search(r"ZERO_PAGE|INDIRECT|BRANCH|BYTE", text) else 1

    def _entries(self) -> list[int]:
        """Instructions that are not only reached from the one before."""
        before = {}
        entries = set()
        for offset, address in self.addresses.items():
            follows = self._offset(offset, address + self._length(offset))
            if follows is not None and self._rom[offset] != JUMP:
                before[follows] = offset
                if self._rom[offset] == CALL:
                    entries.add(follows)
            target = self._target(offset)
            if target is not None and (there := self._offset(offset, target)) is not None:
                entries.add(there)
        return sorted(entries | (self.addresses.keys() - before.keys()))

    def _longest(self) -> int:
        """Instructions that are done at most without a jump."""
        longest: dict[int, int] = {}
        for offset in reversed(self.addresses):
            after = self._offset(offset, self.addresses[offset] + self._length(offset))
            longest[offset] = 1 + (longest[after] if after is not None else 0)
        return max(longest.values())
