"""Memory that a network is said to take before it is built."""

from __future__ import annotations

import math

import pytest
import torch
from conftest import make_run

from dqnspeed.algorithms import make_network
from dqnspeed.algorithms.footprint import (
    Size,
    batch_bytes,
    check_footprint,
    memory_device,
    needs,
    network_bytes,
    network_size,
)
from dqnspeed.config.options import ConfigError
from dqnspeed.envs import describe
from dqnspeed.execution.optimizers import make_optimizer
from dqnspeed.system import machine

GPU = torch.device("cuda")


def test_experience_goes_to_a_gpu_if_it_fits_beside_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (make_run(f"replay.capacity={size}") for size in (10**4, 10**6))
    there = make_run("replay.capacity=1000000", "replay.device=cuda")
    spec = describe(small)
    monkeypatch.setattr(machine, "pick_device", lambda name: GPU)
    monkeypatch.setattr(machine, "free_gpu_memory", lambda device: 2 * 10**9)
    assert memory_device(small, spec) == GPU and memory_device(large, spec) is None
    check_footprint(large, spec)
    sentence = (
        r"^replay\.device=cuda: replay\.capacity=1000000 needs 7\.\d GB of the GPU's memory, and 1\.\d GB can be had; "
        r"at most (\d+) transitions would fit\.$"
    )
    with pytest.raises(ConfigError, match=sentence) as refused:
        check_footprint(there, spec)
    most = int(str(refused.value).split("at most ")[1].split()[0])
    check_footprint(make_run(f"replay.capacity={most}", "replay.device=cuda"), spec)


def test_games_that_are_played_on_the_gpu_take_room_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("warp")
    monkeypatch.setattr("dqnspeed.emulator.has_cuda", lambda: True)
    monkeypatch.setattr(machine, "pick_device", lambda name: GPU)
    spec = describe(make_run())

    def taken(*overrides: str) -> int:
        return needs(make_run("num_envs=1024", *overrides), spec)["num_envs=1024"]

    there = ["wrappers=emulator", "parallelism=overlap"]
    on_host = taken("wrappers=native")
    assert taken(*there, "wrappers.device=cuda") - on_host > 1024 * 3 * 210 * 160
    assert taken(*there) == taken("wrappers=emulator", "parallelism=process") == on_host


def test_what_an_algorithm_has_between_layers_counts() -> None:
    few, many = (make_run("algo=c51", f"algo.atoms={atoms}") for atoms in (51, 1001))
    spec, size = describe(few), Size(0, 0)
    assert batch_bytes(many, spec, size) - batch_bytes(few, spec, size) == 3 * 4 * (1001**2 - 51**2)


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["dqn", "dqn model.dueling=true", "ppo", "pqn"])
@pytest.mark.parametrize(
    "model",
    ["model=nature", "model=small model.layer_norm=true", "model.hidden=[64,32]", "env=cartpole", "model=board"],
)
def test_the_size_of_a_network_is_known_before_it_is_built(algo: str, model: str) -> None:
    run = make_run(*model.split(), *f"algo={algo}".split())
    spec = describe(run)
    network = make_network(run, spec)
    outputs: list[int] = []
    for module in network.modules():
        if not list(module.children()):
            module.register_forward_hook(lambda module, inputs, output: outputs.append(output.numel()))
    network(torch.zeros(1, *spec.observation_shape))
    activations = sum(outputs) - math.prod(spec.observation_shape)  # the scaled input is counted elsewhere
    assert network_size(run, spec) == Size(sum(p.numel() for p in network.parameters()), activations)


@pytest.mark.slow
def test_the_optimizer_counts_too() -> None:
    needed = []
    for optimizer in ("adam", "rmsprop", "rmsprop_deepmind"):
        run = make_run(f"optimizer={optimizer}", "model=small", "model.hidden=[16]")
        spec = describe(run)
        network = make_network(run, spec)
        made = make_optimizer(run.optimizer, network, torch.device("cpu"))
        sum(p.sum() for p in network.parameters()).backward()  # type: ignore[union-attr]
        made.step()
        slots = sum(value.numel() for slot in made.state.values() for value in slot.values() if value.ndim)
        size = network_size(run, spec)
        needed.append((network_bytes(run, size), 4 * (slots + 4 * size.parameters)))
    assert all(ours == theirs for ours, theirs in needed), needed
