"""The comparison with other libraries."""

from __future__ import annotations

import library_baselines
import pytest
from library_baselines import LIBRARIES, WORK, check_same_work, installed_libraries

from dqnspeed.bench.counting import STEPS, UPDATES
from dqnspeed.bench.measured_process import measure_speeds, running
from dqnspeed.bench.plan import Plan
from dqnspeed.config.options import ConfigError

FAST = [*WORK, "backend=ale", "num_envs=8", "parallelism=overlap", "execution.threads=1"]


@pytest.mark.slow
def test_our_side_may_be_faster_only_at_the_same_work() -> None:
    check_same_work(Plan(FAST))
    for override, key in {"model=small": "model", "algo.double=true": r"algo\.double"}.items():
        with pytest.raises(ConfigError, match=rf"^{key}: would change the work of our side alone"):
            check_same_work(Plan([*FAST, override]))
    with pytest.raises(ConfigError, match=r"^env\.id=ALE/Pong-v5: is no game of the libraries"):
        check_same_work(Plan(["env.id=ALE/Pong-v5"]))


@pytest.mark.integration
@pytest.mark.parametrize("number", range(len(LIBRARIES)))
def test_a_library_does_the_work_of_the_training_beside_it(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(LIBRARIES[number][0].replace("-", "_"))
    monkeypatch.setattr(library_baselines, "LIBRARIES", [LIBRARIES[number]])
    plan = Plan([*WORK, "algo.learning_starts=40"])
    [piece] = installed_libraries(plan)
    with running([piece.compose().program]) as processes:
        found = measure_speeds(processes, 0.0, 0.0)
    assert found[UPDATES] / found[STEPS] == pytest.approx(plan.reference.updates_per_step)
