"""Television interface: writes to its registers at each cycle of a line, compared with ALE."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from devices import DEVICES, mostly_integration
from sweep import TOGETHER, Sweep, delay, describe

MOTIONS = range(0, 256, 16)
SIZES = range(8)  # of NUSIZ
ALL_MOVE = "STA HMP0\nSTA HMP1\nSTA HMM0\nSTA HMM1\nSTA HMBL\n"
ALL_SIZES = "STA NUSIZ0\nSTA NUSIZ1\nSTA CTRLPF\n"
BOTH_WAYS = [(0, 0xFF), (0xFF, 0)]
BYTES = [(0, 0xFF), (0xFF, 0), (0xA5, 0x3C), (0x01, 0x80)]
PLAYFIELD = "LDX #$50\nSTX PF0\nLDX #$93\nSTX PF1\nLDX #$65\nSTX PF2\n"
SWEEPS = {
    # Movement
    "HMOVE, objects apart": Sweep("STA HMOVE", MOTIONS, ALL_MOVE),
    "HMOVE, objects at the left": Sweep("STA HMOVE", MOTIONS, ALL_MOVE, places=TOGETHER),
    "HMOVE, all sizes": Sweep(
        "STA HMOVE",
        [k | motion for k, motion in product(SIZES, (0x10, 0x80))],
        ALL_MOVE + "LSR\nBCC even\nORA #$20\neven: STA NUSIZ0\nSTA NUSIZ1\n",
    ),
    "HMOVE twice": Sweep("STA HMOVE\nSTA HMOVE", MOTIONS, ALL_MOVE),
    "HMOVE after one at cycle 3": Sweep("STA HMOVE", MOTIONS, ALL_MOVE, line="STA HMOVE\n"),
    "HMCLR after HMOVE at cycle 3": Sweep("STA HMCLR", MOTIONS, ALL_MOVE, line="STA HMOVE\n"),
    **{
        f"{name} after HMOVE at cycle 3": Sweep(
            f"STA {name}", list(product(MOTIONS, MOTIONS)), ALL_MOVE, line="STA HMOVE\n"
        )
        for name in ("HMP0", "HMP1", "HMM0", "HMM1", "HMBL")
    },
    # Positions
    **{
        f"{name} with each size": Sweep(f"STA {name}", SIZES, ALL_SIZES)
        for name in ("RESP0", "RESP1", "RESM0", "RESM1", "RESBL")
    },
    **{
        f"{name} in {gap} cycles after HMOVE": Sweep(f"STA HMOVE\n{delay(gap - 3)}STA {name}", (0, 0x70), ALL_MOVE)
        for name, gap in product(("RESP0", "RESP1", "RESM0", "RESM1", "RESBL"), (3, 5, 6, 7, 8, 9))
    },
    **{
        f"{name} after HMOVE at cycle {at}": Sweep(f"STA {name}", [0], ALL_MOVE, line=delay(at - 3) + "STA HMOVE\n")
        for name, at in product(("RESP0", "RESP1", "RESM0", "RESM1", "RESBL"), range(5, 24))
    },
    **{
        f"{name} after HMOVE at cycle 3": Sweep(f"STA {name}", MOTIONS, ALL_MOVE, line="STA HMOVE\n")
        for name in ("RESP0", "RESP1", "RESM0", "RESM1", "RESBL")
    },
    **{
        f"{name} with each size, elsewhere": Sweep(
            f"STA {name}",
            [size | place for size, place in product(SIZES, (0, 0x10, 0x20))],
            f"STA HMP{name[-1]}\nAND #7\nSTA NUSIZ{name[-1]}\nSTA WSYNC\nSTA HMOVE\n",
        )
        for name in ("RESP0", "RESP1", "RESM0", "RESM1")
    },
    **{
        f"RESP0 and in {gap} cycles {name}": Sweep(f"STA RESP0\n{delay(gap - 3)}STA {name}", SIZES, ALL_SIZES)
        for name, gap in product(("RESP0", "COLUBK", "GRP0", "NUSIZ0", "RESM0", "HMOVE", "CXCLR"), (3, 5, 8))
    },
    "RESMP0": Sweep("STA RESMP0", [(2, 0), (0, 2)], "STA RESMP0\n"),
    "RESMP1": Sweep("STA RESMP1", [(2, 0), (0, 2)], "STA RESMP1\n"),
    # Shapes
    "NUSIZ0": Sweep("STA NUSIZ0", list(product(SIZES, SIZES)), "STA NUSIZ0\n"),
    "NUSIZ1": Sweep("STA NUSIZ1", [(a, b) for a, b in product(range(0, 0x40, 9), repeat=2)], "STA NUSIZ1\n"),
    "GRP0": Sweep("STA GRP0", BYTES, "STA GRP0\n"),
    "GRP1": Sweep("STA GRP1", BYTES, "STA GRP1\n"),
    "GRP0, delayed": Sweep(
        "STA GRP0", BYTES, "STA GRP0\nLDX #1\nSTX VDELP0\nSTX VDELP1\nSTX VDELBL\nLDX #0\nSTX ENABL\n"
    ),
    "GRP1, delayed": Sweep(
        "STA GRP1", BYTES, "STA GRP0\nLDX #1\nSTX VDELP0\nSTX VDELP1\nSTX VDELBL\nLDX #0\nSTX ENABL\n"
    ),
    "REFP0": Sweep("STA REFP0", BOTH_WAYS, "STA REFP0\n"),
    "REFP1": Sweep("STA REFP1", BOTH_WAYS, "STA REFP1\n"),
    **{name: Sweep(f"STA {name}", BOTH_WAYS, f"STA {name}\n") for name in ("ENAM0", "ENAM1", "ENABL")},
    **{
        name: Sweep(
            f"STA {name}",
            BOTH_WAYS,
            f"LDX #$F0\nSTX GRP1\nSTX GRP0\nLDX #0\nSTX GRP1\nSTX GRP0\nSTX ENABL\nSTA {name}\n",
        )
        for name in ("VDELP0", "VDELP1", "VDELBL")
    },
    # Playfield, colours, priority
    **{name: Sweep(f"STA {name}", BYTES, f"LDX #1\nSTX CTRLPF\nSTA {name}\n") for name in ("PF0", "PF1", "PF2")},
    "CTRLPF": Sweep(
        "STA CTRLPF",
        [(a, b) for a, b in product((0, 1, 2, 3, 4, 6, 7, 0x35), repeat=2) if a != b],
        PLAYFIELD + "STA CTRLPF\n",
    ),
    "CTRLPF, nothing but a playfield": Sweep(
        "STA CTRLPF",
        [(a, b) for a, b in product((0, 2, 4, 6), repeat=2) if a != b],
        PLAYFIELD + "STA CTRLPF\nLDX #0\nSTX GRP0\nSTX GRP1\nSTX ENAM0\nSTX ENAM1\nSTX ENABL\n",
    ),
    "CTRLPF, objects at the left": Sweep(
        "STA CTRLPF",
        [(a, b) for a, b in product((0, 2, 4, 6, 0x14), repeat=2) if a != b],
        PLAYFIELD + "STA CTRLPF\n",
        places=TOGETHER,
    ),
    "CTRLPF, objects at the right": Sweep(
        "STA CTRLPF",
        [(a, b) for a, b in product((0, 2, 4, 6, 0x14), repeat=2) if a != b],
        PLAYFIELD + "STA CTRLPF\n",
        places="NOP\n" * 6 + TOGETHER,
    ),
    **{
        name: Sweep(f"STA {name}", [(0x1E, 0x7F)], PLAYFIELD + f"LDX #2\nSTX CTRLPF\nSTA {name}\n")
        for name in ("COLUP0", "COLUP1", "COLUPF", "COLUBK")
    },
    # Collisions
    "CXCLR with each set of objects": Sweep(
        "STA CXCLR",
        range(2, 128, 2),
        "LDX #0\nSTX GRP1\nSTA ENABL\nLSR\nSTA ENAM0\nLSR\nSTA ENAM1\nLSR\nAND #6\nSTA GRP0\nASL\nAND #8\nSTA PF0\n",
        places=TOGETHER,
    ),
    # Blanking and synchronization
    "VBLANK": Sweep("STA VBLANK", [(0, 2), (2, 0), (2, 2)], PLAYFIELD + "STA VBLANK\n", places=TOGETHER),
    "WSYNC": Sweep("STX WSYNC\nLDA #$5A\nSTA COLUBK"),
    "WSYNC changed": Sweep("INC WSYNC\nLDA #$5A\nSTA COLUBK"),
    "WSYNC pushed to": Sweep("TSX\nSTX $8C\nLDX #2\nTXS\nPHA\nLDA #$5A\nSTA COLUBK\nLDX $8C\nTXS"),
    "WSYNC in a call": Sweep("TSX\nSTX $8C\nLDX #3\nTXS\nJSR called\ncalled: LDA #$5A\nSTA COLUBK\nLDX $8C\nTXS"),
    "WSYNC in an interruption": Sweep("TSX\nSTX $8C\nLDX #3\nTXS\nBRK\ninterrupt: LDA #$5A\nSTA COLUBK\nLDX $8C\nTXS"),
    **{
        f"{what} in {call[0]}": Sweep(f"TSX\nSTX $8C\nLDX #{stack}\nTXS\n{call[1]}: LDX $8C\nTXS")
        for what, stack in (("colours", 9), ("playfield", 14), ("motions", 34))
        for call in (("a call", "JSR called\ncalled"), ("an interruption", "BRK\ninterrupt"))
    },
    **{
        f"{name} changed": Sweep(f"{how} {name}")
        for how, name in (
            ("INC", "COLUBK"),
            ("DEC", "COLUPF"),
            ("ASL", "COLUP0"),
            ("INC", "GRP0"),
            ("ASL", "PF1"),
            ("DEC", "ENABL"),
            ("LSR", "NUSIZ0"),
            ("INC", "RESP0"),
            ("INC", "RESM0"),
            ("INC", "HMOVE"),
            ("INC", "VBLANK"),
            ("INC", "CTRLPF"),
            ("LSR", "CXCLR"),
            ("INC", "HMP0"),
            ("INC", "RESMP0"),
        )
    },
    "RSYNC": Sweep("STA RSYNC"),
}


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", mostly_integration(SWEEPS, 4))
def test_a_write_at_each_cycle_of_a_line_equals_ale(name: str, device: str, tmp_path: Path) -> None:
    found = SWEEPS[name].differences(tmp_path, device)
    assert not found, describe(found)
