"""Structure of the package: folders, imports, and knowledge that belongs to one folder."""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import dqnspeed

HOUSE = Path(dqnspeed.__file__).parent
ROOT = HOUSE.parent
COMMANDS = ["train.py", "play", "publish", "doctor", "report", "options", "bench"]
ALGORITHMS = sorted(path.stem for path in (ROOT / "conf" / "algo").glob("*.yaml"))
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(HOUSE.rglob("*.py"))
}
MOST_LINES = 400


def modules_outside(*folders: str) -> Iterator[Path]:
    """Modules that are in none of ``folders``."""
    return (path for path in MODULES.values() if path.relative_to(HOUSE).parts[0] not in folders)


def imports(path: Path) -> set[str]:
    """Modules that a module imports anywhere, but for type checkers.

    ``import_module`` counts too: in a module that calls it, every text that is the name of a module.
    """
    tree = ast.parse(path.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    nodes = [node for node in ast.walk(tree) if id(node) not in for_types]
    names = {getattr(node, "attr", getattr(node, "id", "")) for node in nodes}
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= below & MODULES.keys() or {node.module}
        elif isinstance(node, ast.Constant) and {"import_module", "__import__"} & names:
            found.add(str(node.value))
    return found


def test_no_imports_form_a_cycle() -> None:
    graph = {name: (imports(path) & MODULES.keys()) - {name} for name, path in MODULES.items()}
    assert graph["dqnspeed"] >= {"dqnspeed.agents.agent", "dqnspeed.config.schema"}, "imported by import_module"
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_modules_are_short() -> None:
    assert {str(path) for path in MODULES.values() if path.read_text().count("\n") > MOST_LINES} == set()


def test_only_configuration_and_commands_know_hydra() -> None:
    hydra = {"hydra", "omegaconf"}
    outside = modules_outside("config", "cli", *COMMANDS)
    assert {path for path in outside if {name.partition(".")[0] for name in imports(path)} & hydra} == set()


def test_only_algorithms_know_the_names_of_algorithms() -> None:
    name = re.compile(f'"({"|".join(ALGORITHMS)})"')
    assert {path for path in modules_outside("algorithms") if name.search(path.read_text())} == set()
