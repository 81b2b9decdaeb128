"""Random programs, which equal ALE, and random bytes, which do no harm."""

from __future__ import annotations

import dataclasses
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from assembler import OPCODES, RIOT, TIA, assemble, frames
from atari_warp import Emulator, kernels, known_games
from atari_warp.rom_compiler import NATIVE, interpreter
from devices import DEVICES
from side_by_side import Pair
from sweep import COLORS, delay

FLOWING = {"BRK", "JSR", "JMP", "RTS", "RTI", "JAM"}
UNSTABLE = {"SHA", "SHX", "SHY", "TAS"}  # their results depend on the chip
LINEAR = [op for op in OPCODES if op.name not in FLOWING | UNSTABLE and op.mode != "r"]


def instructions(draws: random.Random, number: int = 400) -> bytes:
    """Random instructions with operands in memory, both chips and the cartridge, repeated in every frame."""
    code = []
    for k in range(number):
        op = draws.choice(LINEAR)
        anywhere = [draws.randrange(0x81, 0xF0), draws.randrange(4, 0x80), draws.choice(list(RIOT.values())),
                    draws.randrange(0xF000, 0x10000)]  # fmt: skip
        address = draws.choices(anywhere, (6, 2, 2, 2))[0]
        operand = draws.randrange(256) if op.mode == "#" else address
        code.append(f".byte {', '.join(map(str, [op.code, operand & 0xFF, operand >> 8][: op.length]))}")
        if k % 8 == 0:  # a branch over one instruction, pointers, and the stack
            code.append(f"{draws.choice(['BEQ', 'BNE', 'BMI', 'BPL', 'BCC', 'BCS', 'BVC', 'BVS'])} over{k}")
            code.append(f"STX ${draws.randrange(0x81, 0xF0):02X}\nover{k}:")
            code.append(f"LDX #$FF\nTXS\nLDX #{draws.randrange(256)}\nLDY #{draws.randrange(256)}")
    kept = "STA $F0\nSTX $F1\nSTY $F2\nPHP\nPLA\nSTA $F3\nCLD\nLDX #$FF\nTXS\nSTX $80\nLDA #2\nSTA WSYNC\n"
    return assemble(frames("\n".join(code) + "\n" + kept))


def writes(draws: random.Random) -> bytes:
    """Random writes to the television interface, at random cycles of about eighty lines."""
    names = [name for name in TIA if name not in ("VSYNC", "VBLANK", "WSYNC", "RSYNC") and not name.startswith("AU")]
    code = [COLORS]
    for _ in range(600):
        code.append(f"LDA #{draws.randrange(256)}\nSTA {draws.choice(names)}\n{delay(draws.choice([0, 2, 3, 4, 5]))}")
    for k in range(8):
        code.append(f"LDA {k}\nSTA ${0xA0 + k:02X}\n")
    return assemble(frames("".join(code)))


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("draw", [instructions, writes])
def test_random_programs_equal_ale(draw: Callable[[random.Random], bytes], device: str, tmp_path: Path) -> None:
    programs = 15
    wrong, played = [], 0
    for seed in range(programs):
        pair = Pair(draw(random.Random(seed)), tmp_path, device)
        for frame in range(4):
            if pair.ale.game_over():
                break
            pair.frame()
            played += 1
            if said := pair.difference():
                wrong.append(f"seed {seed}, frame {frame}: {said}")
                break
    assert not wrong, f"{len(wrong)} of {programs} differ\n" + "\n".join(wrong)
    assert played > 2 * programs


CARTRIDGES = ("seaquest", "asteroids", "solaris", "elevator_action", "montezuma_revenge", "robotank")  # one of each


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CARTRIDGES)
def test_random_bytes_as_a_program_change_no_other_console(name: str, device: str) -> None:
    draws = np.random.default_rng(0)
    emulator = Emulator(dataclasses.replace(known_games()[name], start=()), 3, device)
    before = emulator.save_state()
    middle = emulator._launch_of(slice(1, 2))
    for _ in range(5):
        emulator._rom.assign(draws.integers(0, 256, len(emulator._rom)).astype(np.uint8))
        emulator._mask.fill_(True)
        for order, played, seen in ((kernels.START, 0, 0), (kernels.PLAY, 10, 10)):
            for what, value in (("order", order), ("frames", played), ("drawn", seen)):
                middle.set_param_by_name(what, value)
            middle.launch()
        after = emulator.save_state()
        for part in ("consoles", "screens"):
            np.testing.assert_array_equal(after[part][::2], before[part][::2])
        assert (after["consoles"][1] != before["consoles"][1]).any()


@pytest.mark.integration
def test_ten_thousand_random_cartridges_stay_within_their_arrays(tmp_path: Path) -> None:
    """Sanitizers of the compiler end the program at the first access outside an array."""
    if not (compiler := shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("needs a compiler of C++")
    harness, source = tmp_path / "harness", Path(__file__).with_name("harness.cpp")
    (tmp_path / "fast.h").write_text(interpreter())
    options = ["-std=c++17", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    built = subprocess.run(
        [compiler, *options, f"-I{tmp_path}", f"-I{NATIVE}", source, "-o", harness], capture_output=True, text=True
    )
    if "cannot find" in built.stderr:
        pytest.skip("needs the libraries of the sanitizers")
    assert built.returncode == 0, built.stderr
    played = subprocess.run([harness, "0", "10000"], capture_output=True, text=True)
    assert (played.returncode, played.stdout) == (0, "done\n"), played.stderr
