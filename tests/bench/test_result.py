"""bench.json: what the bench found, as it was found."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from made import make_result

from dqnspeed.bench import result as results


def test_the_file_holds_the_whole_result(tmp_path: Path) -> None:
    results.write(make_result(), tmp_path / "bench.json")
    assert json.loads((tmp_path / "bench.json").read_text()) == dataclasses.asdict(make_result())
