"""How the house is built: what imports what, and where things may be known."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import dqnspeed

HOUSE = Path(dqnspeed.__file__).parent
ROOT = HOUSE.parent
COMMANDS = ["train.py", "play", "doctor", "report", "options", "bench"]
ALGORITHMS = sorted(path.stem for path in (ROOT / "conf" / "algo").glob("*.yaml"))


def files_but(*apart: str) -> Iterator[Path]:
    """Every module of the house but those in what is named."""
    return (path for path in sorted(HOUSE.rglob("*.py")) if path.relative_to(HOUSE).parts[0] not in apart)


def imports(path: Path) -> set[str]:
    """The packages that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        found |= {name.partition(".")[0] for name in names}
    return found


def test_imports_go_one_way(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its command line would switch off the loggers of all other tests; those for a GPU are collected without it.
    from importlinter.application import use_cases
    from importlinter.configuration import configure

    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))
    configure()
    assert use_cases.lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None)


def test_the_house_has_at_most_twenty_entries() -> None:
    entries = {path.name for path in HOUSE.iterdir()} - {"__pycache__", "py.typed", "__init__.py"}
    assert len(entries) <= 20, sorted(entries)


def test_only_configuration_and_commands_know_hydra() -> None:
    know = {str(path) for path in files_but("config", "cli", *COMMANDS) if imports(path) & {"hydra", "omegaconf"}}
    assert know == set()


def test_only_algorithms_know_the_names_of_algorithms() -> None:
    name = re.compile(f'"({"|".join(ALGORITHMS)})"')
    found = {str(path) for path in files_but("algorithms") if name.search(path.read_text())}
    assert found == set()
