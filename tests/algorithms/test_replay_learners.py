"""Updates of C51, Rainbow, IQN, Munchausen DQN and discrete SAC against the equations of their papers, written out."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from conftest import make_run
from hypothesis import given, settings
from hypothesis import strategies as st
from one_update import SEED, SIZE, VECTOR, assert_same, batch_of, check_update, learner_of, observation
from torch import nn
from torch.nn import functional as F

from dqnspeed.algorithms import make_network
from dqnspeed.algorithms.c51 import C51, project
from dqnspeed.algorithms.munchausen import munchausen_reward, soft_value
from dqnspeed.buffers import Batch
from dqnspeed.exploration.noisy import NoisyLinear


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
def test_the_projection_is_algorithm_1(atoms: int, low: float, width: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    p = torch.rand(7, atoms, generator=generator, dtype=torch.float64).softmax(dim=1)
    rewards = 10 * torch.randn(7, generator=generator, dtype=torch.float64)
    discounts = torch.tensor([0.0, 0.0, 0.5, 0.9, 0.99, 0.99**3, 1.0], dtype=torch.float64)
    support = torch.linspace(low, low + width, atoms, dtype=torch.float64)
    projected = project(p, rewards, discounts, support)
    for i in range(7):
        expected = categorical_algorithm(p[i].tolist(), float(rewards[i]), float(discounts[i]), support.tolist())
        torch.testing.assert_close(projected[i], torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-9)


@pytest.mark.parametrize("atoms", [2, 51, 101])
def test_a_projection_in_float32_gives_probabilities(atoms: int) -> None:
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


@pytest.mark.parametrize(
    ("line", "weighted"),
    [
        ("algo=c51", False),
        ("algo=c51 algo.double=true algo.n_step=3", True),
        ("algo=c51 model.dueling=true algo.atoms=11 algo.value_max=3", False),
        ("algo=rainbow", True),
    ],
)
def test_an_update_of_c51_is_the_gradient_step_of_algorithm_1(line: str, weighted: bool) -> None:
    overrides = line.split()
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


def test_c51_gives_mean_returns_in_float32_also_in_bf16() -> None:
    """A matrix product under autocast would round them, and the best of two actions with them."""
    learner, seen = learner_of("algo=c51", "model.dueling=true"), torch.randn(64, 5)
    with torch.autocast("cpu", torch.bfloat16):
        q, log_probs = learner.network(seen), learner.network.log_probs(seen)  # type: ignore[operator]
    assert q.dtype == log_probs.dtype == torch.float32 and q.shape == (64, 3) and log_probs.shape == (64, 3, 51)
    support = torch.linspace(-10, 10, 51)
    torch.testing.assert_close(q, log_probs.exp() @ support, rtol=1e-5, atol=1e-5)


def test_the_layers_of_rainbow_are_noisy_and_its_streams_two() -> None:
    network = make_network(make_run("algo=rainbow", "env=cartpole"), VECTOR)
    linear = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    assert len(linear) == 6 and all(isinstance(layer, NoisyLinear) for layer in linear)
    seen = torch.randn(4, 5)
    assert not torch.equal(network(seen), network(seen))
    network.eval()
    assert torch.equal(network(seen), network(seen))


def quantile(network: nn.Module, seen: torch.Tensor, tau: float) -> torch.Tensor:
    """``(num_actions,)`` of one observation by the layers of the network (equation 4)."""
    features = network.features(network.preprocess(seen))[0]  # type: ignore[operator]
    layer = network.embedding.linear  # type: ignore[union-attr]
    cosines = torch.tensor([math.cos(math.pi * i * tau) for i in range(64)])
    both = (features * F.relu(layer.weight @ cosines + layer.bias))[None]  # type: ignore[operator]
    q = network.q(both)[0]  # type: ignore[operator]
    return q if network.value is None else network.value(both)[0] + q - q.mean()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("double", "dueling", "weighted"), [(False, False, True), (True, False, False), (True, True, True)]
)
def test_an_update_of_iqn_is_the_gradient_step_of_equation_3(double: bool, dueling: bool, weighted: bool) -> None:
    counts = ["algo.samples=5", "algo.target_samples=3", "algo.acting_samples=4", "algo.kappa=0.5"]
    learner = learner_of("algo=iqn", f"algo.double={double}", f"model.dueling={dueling}", *counts)
    torch.manual_seed(SEED)
    taus, next_taus = torch.rand(SIZE, 5), torch.rand(SIZE, 3)

    def transition(i: int, batch: Batch, online: nn.Module, target: nn.Module) -> tuple[torch.Tensor, float]:
        after = observation(batch, i, after=True)
        with torch.no_grad():
            acting = [quantile(online if double else target, after, tau) for tau in (0.125, 0.375, 0.625, 0.875)]
            best = int(torch.stack(acting).mean(dim=0).argmax())
            goals = [
                float(batch.rewards[i]) + float(batch.discounts[i]) * float(quantile(target, after, tau)[best])
                for tau in next_taus[i].tolist()
            ]
        told = [quantile(online, observation(batch, i), tau)[batch.actions[i]] for tau in taus[i].tolist()]
        total = torch.zeros(())
        for value, tau in zip(told, taus[i].tolist(), strict=True):
            for goal in goals:
                error = goal - value
                size = abs(error.item())
                huber = error**2 / 2 if size <= 0.5 else 0.5 * (error.abs() - 0.25)
                total = total + abs(tau - (error.item() < 0)) * huber / 0.5 / 3
        return total, abs(sum(goals) / 3 - torch.stack(told).mean().item())

    check_update(learner, weighted, transition)


def test_iqn_gives_the_mean_of_evenly_spaced_quantiles_and_draws_nothing() -> None:
    network, seen = learner_of("algo=iqn", "algo.acting_samples=2").network, torch.randn(1, 5)
    before = torch.get_rng_state()
    expected = (quantile(network, seen, 0.25) + quantile(network, seen, 0.75)) / 2
    torch.testing.assert_close(network(seen)[0], expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(torch.get_rng_state(), before)


def policy_of(q: list[float], temperature: float) -> list[float]:
    weights = [math.exp((value - max(q)) / temperature) for value in q]
    return [weight / sum(weights) for weight in weights]


def test_large_values_at_the_paper_s_temperature_stay_exact_and_finite() -> None:
    q = torch.tensor([[300.0, 299.99, -300.0], [-300.0, -300.0, -900.0]], requires_grad=True)
    values = soft_value(q, 0.03)
    exact = [300 + 0.03 * math.log(1 + math.exp(-0.01 / 0.03)), -300 + 0.03 * math.log(2)]
    torch.testing.assert_close(values, torch.tensor(exact), rtol=0, atol=1e-3)
    rewards = munchausen_reward(torch.zeros(2), q, torch.tensor([2, 0]), 1.0, 0.03, -1.0)
    torch.testing.assert_close(rewards, torch.tensor([-1.0, -0.03 * math.log(2)]))  # clipped, and not
    (values.sum() + rewards.sum()).backward()
    assert q.grad is not None and q.grad.isfinite().all()


@pytest.mark.parametrize(
    ("dueling", "loss", "weighted"),
    [(False, "huber", False), (False, "mse", True), (True, "huber", True), (True, "mse", False)],
)
def test_an_update_of_munchausen_is_the_gradient_step_of_equation_1(dueling: bool, loss: str, weighted: bool) -> None:
    learner = learner_of("algo=munchausen", "algo.temperature=0.3", f"algo.loss={loss}", f"model.dueling={dueling}")

    def transition(i: int, batch: Batch, online: nn.Module, target: nn.Module) -> tuple[torch.Tensor, float]:
        with torch.no_grad():
            q, next_q = (target(observation(batch, i, after))[0].tolist() for after in (False, True))
        bonus = 0.3 * math.log(policy_of(q, 0.3)[batch.actions[i]])
        value = sum(p * (v - 0.3 * math.log(p)) for p, v in zip(policy_of(next_q, 0.3), next_q, strict=True))
        goal = float(batch.rewards[i]) + 0.9 * max(-1.0, bonus) + float(batch.discounts[i]) * value
        error = online(observation(batch, i))[0, batch.actions[i]] - goal
        return error**2 if loss == "mse" else nn.functional.huber_loss(error, torch.zeros(())), abs(error.item())

    check_update(learner, weighted, transition)


def parts(network: nn.Module) -> dict[str, list[nn.Parameter]]:
    """The parameters of the policy, the two critics and the temperature."""
    split: dict[str, list[nn.Parameter]] = {"policy": [], "critic 1": [], "critic 2": [], "temperature": []}
    for name, parameter in network.named_parameters():
        critic = name.startswith("critics.") and f"critic {int(name.split('.')[1]) + 1}"
        split[critic or ("temperature" if name == "log_temperature" else "policy")].append(parameter)
    return split


@pytest.mark.parametrize(("weighted", "no_grad"), [(False, True), (True, False)])
def test_an_update_of_sac_is_a_step_on_each_loss_by_itself(weighted: bool, no_grad: bool) -> None:
    learner = learner_of(
        "algo=sac_discrete", "algo.max_grad_norm=null", "algo.temperature=0.7", "algo.target_entropy=0.5",
        f"execution.no_grad={no_grad}",
    )  # fmt: skip
    online, target = copy.deepcopy(learner.network), copy.deepcopy(learner.target.network)  # type: ignore[union-attr]
    batch, told = batch_of(weighted)
    weights = torch.ones(SIZE) if batch.weights is None else batch.weights
    alpha = online.log_temperature.exp().item()  # type: ignore[operator]
    losses, errors = dict.fromkeys(parts(online), torch.zeros(())), []
    for i in range(SIZE):
        seen, after, action = observation(batch, i), observation(batch, i, after=True), batch.actions[i]
        with torch.no_grad():
            pi = torch.softmax(online(after)[0], dim=0)
            least = torch.minimum(*(q[0] for q in target.action_values(after)))  # type: ignore[operator]
            value = float((pi * (least - alpha * pi.log())).sum())
        goal = float(batch.rewards[i]) + float(batch.discounts[i]) * value
        qs = [q[0] for q in online.action_values(seen)]  # type: ignore[operator]
        for number, q in enumerate(qs, start=1):
            losses[f"critic {number}"] = losses[f"critic {number}"] + weights[i] * (q[action] - goal) ** 2 / 2 / SIZE
        pi = torch.softmax(online(seen)[0], dim=0)
        least = torch.minimum(*(q.detach() for q in qs))
        losses["policy"] = losses["policy"] + (pi * (alpha * pi.log() - least)).sum() / SIZE
        entropy = -float((pi * pi.log()).sum().detach())
        temperature = online.log_temperature.exp()  # type: ignore[operator]
        losses["temperature"] = losses["temperature"] + temperature * (entropy - 0.5 * math.log(3)) / SIZE
        errors.append(abs(qs[0][action].item() - goal))
    for part, parameters in parts(online).items():
        optimizer = torch.optim.Adam(parameters, lr=1e-3)
        for parameter, gradient in zip(parameters, torch.autograd.grad(losses[part], parameters), strict=True):
            parameter.grad = gradient
        optimizer.step()

    learner.update(batch)
    assert_same(learner.network, online)
    stats = learner.stats()
    assert stats["train/loss"] == pytest.approx(sum(loss.item() for loss in losses.values()), rel=1e-4)
    assert stats["train/temperature"] == pytest.approx(alpha)
    if weighted:
        np.testing.assert_allclose(told[0], errors, rtol=1e-3, atol=1e-5)
