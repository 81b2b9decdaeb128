"""The comparison of two commits: its cases can be run, and it sees a difference."""

from __future__ import annotations

from pathlib import Path

import pytest
import same_numbers
from conftest import make_run

ROOT = Path(same_numbers.__file__).parents[1]
SHORT = (*same_numbers.COMMON, *same_numbers.CARTPOLE, *same_numbers.ALGORITHMS["dqn"], "stop.max_steps=300")


@pytest.mark.parametrize("case", same_numbers.CASES)
def test_every_case_composes(case: str) -> None:
    make_run(*same_numbers.CASES[case])


@pytest.mark.slow
def test_equal_runs_are_equal_and_another_seed_is_a_difference() -> None:
    first, again = (same_numbers.numbers_of(ROOT, SHORT) for _ in range(2))
    other = same_numbers.numbers_of(ROOT, (*SHORT, "seed=8"))
    assert first == again and first["returns"]
    assert all(first[name] != other[name] for name in ("train/loss", "returns", "weights"))


def test_options_have_the_names_of_the_tree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(same_numbers, "EARLIER_OPTIONS", {"algo.new": "algo.old", "wrappers=plain": "wrappers=bare"})
    (tmp_path / "conf" / "algo").mkdir(parents=True)
    (tmp_path / "conf" / "algo" / "dqn.yaml").write_text("algo:\n  old: 1\n  gamma: 0.9\n")
    (tmp_path / "conf" / "wrappers").mkdir()
    (tmp_path / "conf" / "wrappers" / "bare.yaml").touch()
    given = ("algo=dqn", "algo.new=2", "algo.gamma=0.5", "wrappers=plain", "seed=1")
    expected = ["algo=dqn", "algo.old=2", "algo.gamma=0.5", "wrappers=bare", "seed=1"]
    assert same_numbers.options_at(tmp_path, given) == expected
