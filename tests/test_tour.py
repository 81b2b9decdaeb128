"""The tour notebook does what it says."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest
from conftest import environment

import dqnspeed

TOUR = Path(dqnspeed.__file__).parents[1] / "examples" / "tour.ipynb"


@pytest.mark.slow
def test_the_tour_runs_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tour = nbformat.read(TOUR, as_version=4)
    assert not any(cell.get("outputs") for cell in tour.cells)  # so that a change shows what it changes
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    nbclient.NotebookClient(tour, timeout=120, resources={"metadata": {"path": tmp_path}}).execute()
    shown = [output.get("data", {}) for cell in tour.cells for output in cell.get("outputs", [])]
    bars = [data["text/html"] for data in shown if "<progress" in data.get("text/html", "")]
    assert len(bars) == 2 and "8,000 steps" in bars[0]
    assert sum("image/png" in data for data in shown) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["outputs"]
