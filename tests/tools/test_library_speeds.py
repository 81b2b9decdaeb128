"""The comparison with other libraries."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace

import library_speeds
import pytest
from library_speeds import CASES

from dqnspeed.bench.counting import STEPS, UPDATES
from dqnspeed.bench.measured_process import Program, measure_speeds, running
from dqnspeed.config.options import ConfigError

DQN = CASES["atari_dqn"]


def test_our_side_may_be_faster_only_at_the_same_work() -> None:
    assert DQN.workload(["num_envs=8", "parallelism=overlap", "execution.threads=1"]).run.num_envs == 8
    for override, key in {"model=small": "model", "algo.double=true": r"algo\.double", "env.id=a": r"env\.id"}.items():
        with pytest.raises(ConfigError, match=rf"^{key}: would change the work of our side alone"):
            DQN.workload([override])


@pytest.mark.parametrize("name", CASES)
def test_the_work_of_a_case_can_be_trained(name: str) -> None:
    assert CASES[name].workload([]).run.stop.max_steps is None


@pytest.mark.integration
@pytest.mark.parametrize("library", DQN.libraries)
def test_a_library_does_the_work_of_the_training_beside_it(library: str) -> None:
    module, train = DQN.libraries[library]
    pytest.importorskip(module)
    workload = DQN.workload(["algo.learning_starts=40"])
    program = Program(
        [sys.executable, library_speeds.__file__, "measured"], pickle.dumps(replace(workload, function=train))
    )
    with running([program]) as processes:
        found = measure_speeds(processes, 0.0, 0.0)
    assert found[UPDATES] / found[STEPS] == pytest.approx(workload.run.updates_per_step)
