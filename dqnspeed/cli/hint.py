"""One line at the start of a training, where the bench has found a faster one on this machine."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dqnspeed.config import changes
from dqnspeed.config.schema import RunConfig
from dqnspeed.system import machine

BENCH = "bench"  # where its results are, unless out= says otherwise
FILE = "bench.json"
OBVIOUS = 1.1  # gain from which a line is worth a hint
BESIDE = {"env", "seed", "stop", "tracking", "checkpoint", "eval", "hydra"}  # groups that the speed does not depend on
SAME = ("cpu", "gpu", "cores", "device")  # of the machine


def faster_line(run: RunConfig, overrides: Sequence[str], here: Path = Path(BENCH)) -> str | None:
    """A sentence on what the newest result for this machine, this game and these ``overrides`` recommends, if it is
    obviously faster; else ``None``. A result that cannot be read is passed over."""
    if not run.has_replay:
        return None
    own = _of_work(overrides)
    machine_here = machine.describe(machine.pick_device(run.device))
    for path in sorted(here.glob(f"*/{FILE}"), key=_written, reverse=True):
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if found["env"] != run.env.id or any(found["machine"][key] != machine_here[key] for key in SAME):
                continue
            if _of_work([str(override) for override in found["overrides"]]) != own:
                continue
            line = found["recommendation"]
            words = [word for word in shlex.split(line["line"]) if "=" in word]  # with the work that was measured
            parts, gain = [word for word in words if _of_work([word])], line["measured"] or line["expected"]
            kinds = set(map(str, dict(line["kinds"]).values())) - {changes.EXACT, changes.EQUIVALENT}
            low, median = float(gain["low"]), float(gain["median"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if low < OBVIOUS:
            return None
        also = f", and {' and '.join(sorted(kinds))}" if kinds else ""
        return f"{' '.join(parts)} is {median:.2f} times as fast here{also} ({path})."
    return None


def _of_work(overrides: Sequence[str]) -> set[str]:
    """The overrides without those that the speed does not depend on, and without the game."""
    named = ((override, next(iter(changes.keys_of([override])))) for override in overrides)
    return {override for override, key in named if key.partition(".")[0] not in BESIDE}


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
