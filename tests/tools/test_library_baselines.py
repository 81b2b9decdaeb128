"""Other libraries beside ours."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import library_baselines
import pytest
from library_baselines import LIBRARIES, WORK, check, pieces

from dqnspeed.bench.counting import STEPS, UPDATES
from dqnspeed.bench.measured_process import running, speeds_of
from dqnspeed.bench.plan import Plan
from dqnspeed.config.options import ConfigError

LINE = [*WORK, "backend=ale", "num_envs=8", "parallelism=overlap", "execution.threads=1"]


def test_where_no_library_is_installed_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(ConfigError, match=r"pip install 'dqnspeed\[peers\]' brings them"):
        pieces(Plan([]))


@pytest.mark.slow
def test_a_line_may_be_faster_at_the_same_work_alone() -> None:
    check(Plan(LINE))
    check(Plan(["env.id=BreakoutNoFrameskip-v4"]))
    for override, key in {
        "model=small": "model", "wrappers.resize=64": r"wrappers\.resize", "algo.double=true": r"algo\.double",
        "wrappers=none": "wrappers=none", "env.sticky_actions=0.25": r"env\.sticky_actions",
        "parallelism.samples_per_step=16": r"parallelism\.samples_per_step",
    }.items():  # fmt: skip
        with pytest.raises(ConfigError, match=rf"^{key}: would change the work of our side alone"):
            process = ["parallelism=process"] if "samples_per_step" in override else []
            check(Plan([*LINE, "backend=gymnasium", *process, override]))
    with pytest.raises(ConfigError, match=r"^env\.id=ALE/Pong-v5: is no game of the libraries"):
        check(Plan(["env.id=ALE/Pong-v5"]))


def test_more_games_are_no_more_work() -> None:
    reference: Any = Plan([*WORK, "num_envs=8", "algo.steps_per_update=4"]).reference
    assert (reference.num_envs, reference.algo.batch_size, reference.updates_per_step) == (8, 32, 1 / 4)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(LIBRARIES)))
def test_a_library_does_the_work_of_the_training_beside_it(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(LIBRARIES[number][0].replace("-", "_"))
    monkeypatch.setattr(library_baselines, "LIBRARIES", [LIBRARIES[number]])
    plan = Plan([*WORK, "algo.learning_starts=40"])
    [piece] = pieces(plan)
    with running(piece.make().program) as [subject]:
        found = speeds_of([subject], 0.0, 0.0)
    assert found[UPDATES] / found[STEPS] == pytest.approx(plan.reference.updates_per_step)
