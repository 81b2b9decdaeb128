"""The projection and updates against algorithm 1 of Bellemare et al. (2017), written out, and Rainbow's numbers."""

from __future__ import annotations

import math

import pytest
import torch
from conftest import make_run
from hypothesis import given, settings
from hypothesis import strategies as st
from one_update import check_update, learner_of, observation
from test_dqn import VECTOR
from torch import nn

from dqnspeed.algorithms import make_network
from dqnspeed.algorithms.c51 import C51, project
from dqnspeed.algorithms.rainbow import Rainbow
from dqnspeed.buffers import Batch
from dqnspeed.buffers.prioritized import PrioritizedReplay
from dqnspeed.config.combinations import check
from dqnspeed.config.options import ConfigError
from dqnspeed.exploration.noisy import Noisy, NoisyLinear


def categorical_algorithm(p: list[float], reward: float, discount: float, z: list[float]) -> list[float]:
    """Algorithm 1 for one transition, and what it leaves out: a return that is exactly an atom."""
    low, high, atoms = z[0], z[-1], len(z)
    spacing = (high - low) / (atoms - 1)
    m = [0.0] * atoms
    for j in range(atoms):
        b = (min(high, max(low, reward + discount * z[j])) - low) / spacing
        b = min(b, atoms - 1.0)  # rounding may lead past the last atom
        lower, upper = math.floor(b), math.ceil(b)
        if lower == upper:
            m[lower] += p[j]
        else:
            m[lower] += p[j] * (upper - b)
            m[upper] += p[j] * (b - lower)
    return m


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 60), st.floats(-20, 5), st.floats(0.5, 30), st.integers(0, 2**31))
def test_it_is_algorithm_1(atoms: int, low: float, width: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    p = torch.rand(7, atoms, generator=generator, dtype=torch.float64).softmax(dim=1)
    rewards = 10 * torch.randn(7, generator=generator, dtype=torch.float64)
    discounts = torch.tensor([0.0, 0.0, 0.5, 0.9, 0.99, 0.99**3, 1.0], dtype=torch.float64)
    support = torch.linspace(low, low + width, atoms, dtype=torch.float64)
    projected = project(p, rewards, discounts, support)
    for i in range(7):
        expected = categorical_algorithm(p[i].tolist(), float(rewards[i]), float(discounts[i]), support.tolist())
        torch.testing.assert_close(projected[i], torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-9)


def test_by_hand() -> None:
    support = torch.tensor([-1.0, 0.0, 1.0])
    p = torch.tensor([[0.2, 0.3, 0.5]] * 5)
    rewards = torch.tensor([0.0, 0.25, 5.0, 1.0, 0.5])
    discounts = torch.tensor([1.0, 0.0, 0.9, 1.0, 0.5])
    expected = torch.tensor(
        [
            [0.2, 0.3, 0.5],  # nothing changes
            [0.0, 0.75, 0.25],  # terminated: a quarter of the way from 0 to 1
            [0.0, 0.0, 1.0],  # beyond the last atom
            [0.0, 0.2, 0.8],  # moved by one atom
            [0.0, 0.2 + 0.3 / 2, 0.3 / 2 + 0.5],  # to 0, 0.5 and 1
        ]
    )
    torch.testing.assert_close(project(p, rewards, discounts, support), expected)


@pytest.mark.parametrize("atoms", [2, 51, 101])
def test_in_float32_probabilities_stay_so(atoms: int) -> None:
    p = torch.randn(64, atoms).softmax(dim=1)
    projected = project(p, 3 * torch.randn(64), torch.full((64,), 0.99), torch.linspace(-10, 10, atoms))
    assert projected.dtype == torch.float32 and (projected >= 0).all()
    torch.testing.assert_close(projected.sum(dim=1), torch.ones(64), rtol=0, atol=1e-5)


def log_probs_of(network: nn.Module, seen: torch.Tensor) -> torch.Tensor:
    """``(num_actions, atoms)`` by the layers of the network, for one observation."""
    features = network.features(network.preprocess(seen))  # type: ignore[operator]
    logits = network.q(features).reshape(3, -1)  # type: ignore[operator]
    if network.value is not None:
        logits = network.value(features) + logits - logits.mean(dim=0)  # type: ignore[operator]
    return torch.log(torch.softmax(logits, dim=1))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "overrides",
    [
        ("algo=c51",),
        ("algo=c51", "algo.double=true", "algo.n_step=3"),
        ("algo=c51", "model.dueling=true", "algo.atoms=11", "algo.value_max=3"),
        ("algo=rainbow",),
    ],
    ids=["plain", "double", "dueling", "rainbow"],
)
def test_an_update_is_the_gradient_step_of_algorithm_1(overrides: tuple[str, ...], weighted: bool) -> None:
    run, learner = make_run("env=cartpole", *overrides), learner_of(*overrides)
    assert isinstance(run.algo, C51)
    for network in (learner.network, learner.target.network):  # type: ignore[union-attr]
        network.eval()  # without Rainbow's noise
    z = torch.linspace(run.algo.value_min, run.algo.value_max, run.algo.atoms)

    def transition(i: int, batch: Batch, online: nn.Module, target: nn.Module) -> tuple[torch.Tensor, float]:
        after = observation(batch, i, after=True)
        with torch.no_grad():
            following = log_probs_of(target, after).exp()
            chooser = log_probs_of(online, after).exp() if run.algo.double else following  # type: ignore[attr-defined]
            best = int((chooser @ z).argmax())
        m = categorical_algorithm(
            following[best].tolist(), float(batch.rewards[i]), float(batch.discounts[i]), z.tolist()
        )
        log_p = log_probs_of(online, observation(batch, i))[batch.actions[i]]
        divergence = sum(mj * (math.log(mj) - lp) for mj, lp in zip(m, log_p.tolist(), strict=True) if mj)
        return -(torch.tensor(m) * log_p).sum(), divergence

    check_update(learner, weighted, transition)


def test_called_it_gives_mean_returns_in_float32_also_in_bf16() -> None:
    """A matrix product under autocast would round them, and the best of two actions with them."""
    learner, seen = learner_of("algo=c51", "model.dueling=true"), torch.randn(64, 5)
    with torch.autocast("cpu", torch.bfloat16):
        q, log_probs = learner.network(seen), learner.network.log_probs(seen)  # type: ignore[operator]
    assert q.dtype == log_probs.dtype == torch.float32 and q.shape == (64, 3) and log_probs.shape == (64, 3, 51)
    support = torch.linspace(-10, 10, 51)
    torch.testing.assert_close(q, log_probs.exp() @ support, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("algo", ["c51", "rainbow"])
def test_returns_that_are_out_of_order_are_refused(algo: str) -> None:
    with pytest.raises(ConfigError, match=r"^algo.value_min=5.0: must be less than algo.value_max=5.0.$"):
        check(make_run(f"algo={algo}", "algo.value_min=5", "algo.value_max=5"))
    with pytest.raises(ConfigError, match=r"^algo.atoms=1: must be at least 2.$"):
        check(make_run(f"algo={algo}", "algo.atoms=1"))


def test_rainbow_has_the_numbers_of_its_paper() -> None:
    """Hessel et al. 2018, table 1; a step is four frames."""
    run = make_run("algo=rainbow")
    assert isinstance(run.algo, Rainbow) and isinstance(run.exploration, Noisy)
    assert isinstance(run.replay, PrioritizedReplay)
    assert (run.algo.learning_starts, run.algo.steps_per_update, run.algo.batch_size) == (80_000 // 4, 4, 32)
    assert run.algo.target_update_every * run.algo.steps_per_update == 32_000 // 4
    assert (run.algo.n_step, run.algo.gamma, run.algo.double, run.model.dueling) == (3, 0.99, True, True)
    assert (run.algo.atoms, run.algo.value_min, run.algo.value_max) == (51, -10, 10)
    assert (run.optimizer.name, run.optimizer.lr, run.optimizer.eps) == ("adam", 6.25e-5, 1.5e-4)
    assert (run.exploration.start, run.exploration.final, run.exploration.sigma0) == (0, 0, 0.5)
    assert (run.replay.buffer_size, run.replay.alpha, run.replay.beta, run.replay.beta_final) == (
        1_000_000,
        0.5,
        0.4,
        1,
    )
    assert run.replay.beta_updates == 200_000_000 // 4 // 4  # over the 200 million frames


def test_the_layers_of_rainbow_are_noisy_and_its_streams_two() -> None:
    network = make_network(make_run("algo=rainbow", "env=cartpole"), VECTOR)
    linear = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    assert len(linear) == 6 and all(isinstance(layer, NoisyLinear) for layer in linear)
    seen = torch.randn(4, 5)
    assert not torch.equal(network(seen), network(seen))
    network.eval()
    assert torch.equal(network(seen), network(seen))
