"""Compiler of a ROM's code to C++, with the address and operands of every instruction known.

Looking up what an instruction does takes most of the time of the interpreter in ``native/fast.h`` on a CPU. In compiled
code the C++ compiler sees whole loops. At addresses without compiled code the interpreter runs until the next jump.
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
INTERPRETED = "enum { IS_COMPILED = 0 };\nCUDA_CALLABLE i32 compiled(i32 left) { return left; }"
# First and last address of the ROM in the cartridge's 4 KiB, without addresses that switch banks.
BEGINS = {"DPC": 0x80}
ENDS = {"F8": 0xFF8, "DPC": 0xFC0, "F6": 0xFF6, "E0": 0xFE0}


def interpreter(code: str = INTERPRETED) -> str:
    """``native/fast.h`` with its interpreter and the compiled ``code`` of a game."""
    others = "".join(f"OP(0x{opcode:02x}) " for opcode in range(256) if opcode not in TABLE)
    interpreted = "\n".join(f"OP(0x{opcode:02x}) {text}" for opcode, text in TABLE.items()) + f"\n{others}goto other;"
    text = (NATIVE / "fast.h").read_text()
    return text.replace("@INSTRUCTIONS@", interpreted).replace("@COMPILED@", code)


def rom_code(game: Game, rom: bytes, trace: np.ndarray) -> str:
    """C++ of the instructions in ``trace`` ``(len(rom),) uint8``, for :func:`interpreter`; see ``Console::trace``."""
    code = Code(game, rom, trace)
    return code.text() if code.addresses else INTERPRETED


class Code:
    """Instructions of a ROM by their offsets in it.

    Attributes:
        addresses: address of each instruction as the processor sees it.
    """

    def __init__(self, game: Game, rom: bytes, trace: np.ndarray):
        self._rom = rom
        scheme = game.cartridge.removesuffix("SC")
        self._begin = 0x100 if game.cartridge.endswith("SC") else BEGINS.get(scheme, 0)
        self._end = ENDS.get(scheme, 0x1000)
        self._bank_mask = 0x1C00 if scheme == "E0" else 0xF000  # address bits that are the same throughout a bank
        self.addresses: dict[int, int] = {}
        for offset in map(int, np.flatnonzero(trace)):
            seen = int(trace[offset])
            low = (seen >> 3 & 3) << 10 | offset & 0x3FF
            whole = scheme != "E0" or offset & 0x3FF < 0x3FE
            if rom[offset] in TABLE and whole and self._begin <= low < self._end - 2:
                self.addresses[offset] = (seen & 7) << 13 | 0x1000 | low

    def text(self) -> str:
        """C++ of the function that runs the code."""
        entries = self._entries()
        lines = [self._instruction(offset) for offset in self.addresses]
        cases = "\n".join(f"case {number}: goto at_{offset};" for number, offset in enumerate(entries, 1))
        numbers = np.zeros(len(self._rom), int)  # of entries: a switch over consecutive numbers is one jump
        numbers[entries] = range(1, len(entries) + 1)
        places = [0, *(self.addresses[offset] for offset in entries)]
        size = self._end - self._begin
        return f"""enum {{ IS_COMPILED = 1, LONGEST_RUN = {self._longest()} }};
CUDA_CALLABLE APART i32 compiled(i32 left) {{
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
        next_ = "" if in_line else self._continue_at(offset, follows, jumps=False)
        target = self._target(offset)
        taken = "" if target is None else self._continue_at(offset, target)
        near = target is not None and self._offset(offset, target) is not None
        return f"""at_{offset}: {{
    __label__ next, taken, other;
    enum {{ pc = {address}, OFFSET = {offset}, FIRST = {first}, SECOND = {second}, NEAR = {int(near)} }};
    {TABLE[opcode]}
    other: to = pc; goto out;
    taken: {taken or "goto other;"}
    next: {next_};
}}
"""

    def _continue_at(self, offset: int, address: int, jumps: bool = True) -> str:
        """C++ that continues at an address; a jump is followed only if the frame has room for the longest run."""
        target = self._offset(offset, address)
        if target is None:
            return f"to = {address}; goto find;"
        return (f"if (left <= LONGEST_RUN) {{ to = {address}; goto out; }} " if jumps else "") + f"goto at_{target};"

    def _offset(self, offset: int, address: int) -> int | None:
        """Offset of the instruction at an address, if it is compiled and in the bank of ``offset``."""
        target = offset + address - self.addresses[offset]
        same_bank = (address ^ self.addresses[offset]) & self._bank_mask == 0
        return target if same_bank and self.addresses.get(target) == address else None

    def _target(self, offset: int) -> int | None:
        """Target address of a branch, a jump or a call."""
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
        """Instructions that are reached in other ways than from the previous one."""
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
        """Length of the longest run of instructions without a jump."""
        longest: dict[int, int] = {}
        for offset in reversed(self.addresses):
            after = self._offset(offset, self.addresses[offset] + self._length(offset))
            longest[offset] = 1 + (longest[after] if after is not None else 0)
        return max(longest.values())
