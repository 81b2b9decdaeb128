"""An epsilon of its own for each environment."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import make_run, make_toy

from dqnspeed.algorithms import algorithm_of, epsilon_at
from dqnspeed.envs import describe, make_vector_env


def test_they_are_those_of_the_paper() -> None:
    run = make_run("exploration=per_actor", "num_envs=2", "parallelism=process", "parallelism.num_actors=4")
    assert epsilon_at(0, run) == epsilon_at(10**9, run) == 0.4
    every = [algorithm_of(run).epsilons(run, 0.4, range(2 * i, 2 * i + 2), 8) for i in range(4)]
    np.testing.assert_allclose(np.concatenate(every), [0.4 ** (1 + 7 * i / 7) for i in range(8)])


@pytest.mark.parametrize("parallelism", ["serial", "process"])
def test_each_environment_acts_with_its_own(parallelism: str) -> None:
    """The first acts at random, and the others hardly ever."""
    import torch

    from dqnspeed.actors.stepper import EnvStepper
    from dqnspeed.algorithms import make_network

    run = make_toy("exploration=per_actor", "exploration.start=0.99999", "exploration.alpha=1e7", "num_envs=3",
                   f"parallelism={parallelism}")  # fmt: skip
    spec, cpu = describe(run), torch.device("cpu")
    stepper = EnvStepper(run, spec, make_network(run, spec), cpu, make_vector_env(run))
    taken = []
    for _ in range(60):
        stepper.send(epsilon_at(0, run))
        taken.append(stepper.recv()[0].actions)
    stepper.close()
    counts = [len(set(actions)) for actions in np.array(taken).T.tolist()]
    assert counts[0] == 3 and max(counts[1:]) < 3
