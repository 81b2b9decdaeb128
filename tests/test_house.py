"""Structure of the package: imports, short modules, and knowledge that belongs to one folder."""

from __future__ import annotations

import graphlib
import re
from pathlib import Path

import grimp
import pytest

import dqnspeed

HOUSE = Path(dqnspeed.__file__).parent
COMMANDS = ("train", "play", "doctor", "report", "options", "bench")
MODULES = {path.relative_to(HOUSE): path.read_text() for path in HOUSE.rglob("*.py")}
ALGORITHMS = sorted(path.stem for path in (HOUSE.parent / "conf" / "algo").glob("*.yaml"))
MOST_LINES = 400


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(
        "dqnspeed", include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )


def test_no_imports_form_a_cycle(graph: grimp.ImportGraph) -> None:
    imported = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    try:
        graphlib.TopologicalSorter(imported).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_only_configuration_and_commands_know_hydra(graph: grimp.ImportGraph) -> None:
    users = graph.find_modules_that_directly_import("hydra") | graph.find_modules_that_directly_import("omegaconf")
    assert {name.split(".")[1] for name in users} <= {"config", "cli", *COMMANDS}


def test_modules_are_short() -> None:
    assert [path for path, text in MODULES.items() if text.count("\n") > MOST_LINES] == []


def test_only_algorithms_know_the_names_of_algorithms() -> None:
    name = re.compile(f'"({"|".join(ALGORITHMS)})"')
    assert [path for path, text in MODULES.items() if path.parts[0] != "algorithms" and name.search(text)] == []
