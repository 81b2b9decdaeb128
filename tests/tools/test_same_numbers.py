"""The comparison of the numbers of two commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import same_numbers
from conftest import make_run, train_in

ROOT = Path(same_numbers.__file__).parents[1]
SHORT = (*same_numbers.COMMON, *same_numbers.CARTPOLE, *same_numbers.ALGORITHMS["dqn"], "stop.max_steps=300")


@pytest.mark.integration
@pytest.mark.parametrize("case", same_numbers.CASES)
def test_every_case_composes(case: str) -> None:
    make_run(*same_numbers.CASES[case])


@pytest.mark.slow
def test_equal_runs_have_equal_numbers_and_another_seed_has_others(tmp_path: Path) -> None:
    first, again, other = (trained(tmp_path / name, seed) for name, seed in (("a", 7), ("b", 7), ("c", 8)))
    assert first == again and first["returns"]
    assert all(first[name] != other[name] for name in ("train/loss", "returns", "weights"))


def trained(folder: Path, seed: int) -> dict[str, Any]:
    """The recorded numbers of a training in this process."""
    folder.mkdir()
    train_in(folder, make_run(*SHORT, f"seed={seed}"))
    return same_numbers.recorded(folder)


@pytest.mark.integration
def test_a_tree_trains_with_its_own_code() -> None:
    assert same_numbers.numbers_of(ROOT, SHORT)["returns"]
