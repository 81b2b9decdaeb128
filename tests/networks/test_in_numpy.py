"""Small networks computed by NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import make_run
from torch import nn

from dqnspeed.algorithms import make_network, make_policy
from dqnspeed.envs import EnvSpec
from dqnspeed.networks.in_numpy import in_numpy

SPEC = EnvSpec((5,), np.dtype(np.float32), 3, stack=2, largest=1.0)
CPU = torch.device("cpu")


@pytest.mark.parametrize("algo", ["dqn", "pqn", "ppo", "a2c"])
@pytest.mark.parametrize("hidden", ["[]", "[7]", "[16,8]"])
@pytest.mark.parametrize("scale", ["null", "4"])
def test_a_policy_chooses_alike_by_numpy_and_by_torch(algo: str, hidden: str, scale: str) -> None:
    overrides = ["model=mlp", f"algo={algo}", f"model.hidden={hidden}", f"model.input_scale={scale}"]
    overrides.append("model.layer_norm=false")
    runs = [make_run(*overrides, f"execution.numpy_acting={given}") for given in (True, False)]
    network = make_network(runs[0], SPEC)
    assert network.in_numpy() is not None
    fast, slow = (make_policy(run, SPEC, network, CPU, np.random.default_rng(0)) for run in runs)
    for _ in range(3):
        observations = np.random.default_rng(1).normal(size=(6, 10)).astype(np.float32)
        before = observations.copy()
        (actions, columns), (expected, others) = fast(observations, 0.3), slow(observations, 0.3)
        assert np.array_equal(observations, before)
        assert np.array_equal(actions, expected) and columns.keys() == others.keys()
        for name, values in columns.items():
            assert values == pytest.approx(others[name], rel=1e-4, abs=1e-4)
        with torch.no_grad():
            for weights in network.parameters():  # an update, in place
                weights += torch.randn_like(weights)


@pytest.mark.parametrize(
    "overrides",
    [
        ["model.hidden=[512,512]"],
        ["model.layer_norm=true"],
        ["model.dueling=true"],
        ["model.background=true"],
        ["algo=pqn"],  # layer norm
        ["exploration=noisy"],
        ["algo=c51"],
        ["algo=sac_discrete"],
    ],
    ids=" ".join,
)
def test_others_are_computed_by_torch(overrides: list[str]) -> None:
    assert make_network(make_run("model=mlp", *overrides), SPEC).in_numpy() is None


def test_a_layer_that_is_used_twice_counts_twice_and_own_sequences_are_computed_by_torch() -> None:
    class Doubled(nn.Sequential):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            doubled: torch.Tensor = 2 * super().forward(values)
            return doubled

    layer, relu = nn.Linear(4, 4), nn.ReLU()
    twice = nn.Sequential(layer, relu, nn.Sequential(layer, relu))
    compute, values = in_numpy(twice), torch.randn(6, 4)
    assert compute is not None
    assert compute(values.numpy()) == pytest.approx(twice(values).detach().numpy(), abs=1e-5)
    assert in_numpy(Doubled(layer, relu)) is None
