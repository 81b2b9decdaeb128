"""One line at the start of a training, where the bench has found a faster one on this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dqnspeed.config import changes
from dqnspeed.config.schema import RunConfig
from dqnspeed.system import machine

BENCH = "bench"  # where its results are, unless out= says otherwise
FILE = "bench.json"
OBVIOUS = 1.1  # gain from which a line is worth a hint
SAME = ("cpu", "gpu", "cores", "device")  # of the machine


def faster_line(run: RunConfig, overrides: Sequence[str], here: Path = Path(BENCH)) -> str | None:
    """A sentence on what the newest result for this machine and game recommends, if it is obviously faster and the
    run chooses none of its parts by itself; else ``None``. A result that cannot be read is passed over."""
    if not run.has_replay:
        return None
    machine_here = machine.describe(machine.pick_device(run.device))
    for path in sorted(here.glob(f"*/{FILE}"), key=_written, reverse=True):
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if found["env"] != run.env.id or any(found["machine"][key] != machine_here[key] for key in SAME):
                continue
            line = found["recommendation"]
            parts, gain = [str(part) for part in line["overrides"]], line["expected"]
            low, median = float(gain["low"]), float(gain["median"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if low < OBVIOUS or _groups(overrides) & {*_groups(parts), "algo", "experiment"}:
            return None
        return f"{' '.join(parts)} is {median:.2f} times as fast here ({path})."
    return None


def _groups(overrides: Sequence[str]) -> set[str]:
    return {key.partition(".")[0] for key in changes.keys_of(overrides)}


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
