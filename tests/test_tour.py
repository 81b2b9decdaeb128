"""dqnspeed in a notebook: the tour does what it says, and the stop button stops."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import nbformat
import pytest
from conftest import TOY, environment, once_reported
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

import dqnspeed

TOUR = Path(dqnspeed.__file__).parents[1] / "examples" / "tour.ipynb"


pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def kernels_find_the_toys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)


def execute(notebook: nbformat.NotebookNode, folder: Path) -> None:
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": folder}}).execute()


def test_the_tour_runs_to_its_end(tmp_path: Path) -> None:
    tour = nbformat.read(TOUR, as_version=4)
    assert not any(cell.get("outputs") for cell in tour.cells)  # so that a change shows what it changes
    execute(tour, tmp_path)
    shown = [output.get("data", {}) for cell in tour.cells for output in cell.get("outputs", [])]
    bars = [data["text/html"] for data in shown if "<progress" in data.get("text/html", "")]
    assert len(bars) == 2 and re.search(r" 40,0\d\d steps", bars[0])
    assert sum("image/png" in data for data in shown) == 2
    pages = [data["text/html"] for data in shown if "<polyline" in data.get("text/html", "")]
    assert pages and all(re.search(r"mean return [\d.]+ after \d+ s", page) for page in pages)
    assert sum(data.get("text/html", "").startswith("<video") for data in shown) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["outputs"]


def test_the_stop_button_ends_a_training_and_gives_its_results(tmp_path: Path) -> None:
    overrides = [*TOY, "parallelism=process"]
    notebook = new_notebook(
        cells=[
            new_code_cell("import os, dqnspeed; open('pid', 'w').write(str(os.getpid()))"),
            new_code_cell(f"results = dqnspeed.train({overrides!r}, folder='run')"),
            new_code_cell("print(results.summary['stopped_by'], len(results.metrics) >= 3)"),
        ]
    )
    # Jupyter sends it to the kernel and all processes that it has started.
    with once_reported(tmp_path / "run", lambda: os.killpg(int((tmp_path / "pid").read_text()), signal.SIGINT)):
        execute(notebook, tmp_path)
    assert notebook.cells[-1].outputs[0].text == "SIGINT True\n"
