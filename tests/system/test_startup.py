"""Seconds before a run's first step."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import TOY, environment

from dqnspeed.system.startup import PARTS, Startup


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


def test_time_is_of_the_innermost_part_and_a_run_begins_with_none(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("dqnspeed.system.startup.time", SimpleNamespace(perf_counter=lambda: now[0]))
    startup = Startup()
    now[0] = 1.0
    startup.switch("composition")
    with startup.within("random_play"):
        now[0] = 3.0
        with pytest.raises(ValueError), startup.within("compilation"):
            now[0] = 7.0
            raise ValueError
        now[0] = 15.0
    now[0] = 31.0
    startup.switch("actors")
    assert startup.seconds == dict(zip(PARTS, (1.0, 16.0, 10.0, 4.0, 0.0), strict=True))
    startup.begin()
    now[0] = 32.0
    startup.switch("actors")
    assert startup.seconds == dict(zip(PARTS, (0.0, 1.0, 0.0, 0.0, 0.0), strict=True))
