"""Seconds before a run's first step."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from conftest import TOY, environment

from dqnspeed.system.startup import PARTS


def test_the_parts_add_up_to_the_whole_of_a_run(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "dqnspeed.train", *TOY, "hydra.run.dir=run", "stop.max_steps=50"]
    begun = time.perf_counter()
    result = subprocess.run(line, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True)
    elapsed = time.perf_counter() - begun
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    seconds = summary["startup"]
    assert tuple(seconds) == PARTS and seconds["random_play"] == 0  # there is no crop
    assert all(seconds[part] > 0 for part in ("imports", "composition", "actors"))
    assert sum(seconds.values()) + summary["wall_time_s"] < elapsed
    assert f"samples/step, after {sum(seconds.values()):.0f} s of start-up\n" in result.stdout
