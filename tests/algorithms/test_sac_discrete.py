"""The losses against the equations of Christodoulou (2019), written out."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from conftest import make_run
from one_update import SIZE, assert_same, batch_of, learner_of, observation
from test_dqn import CPU, VECTOR
from torch import Tensor, nn

from dqnspeed.algorithms import make_network, make_policy
from dqnspeed.algorithms.sac_discrete import (
    PolicyCriticsNetwork,
    critic_loss,
    critic_target,
    policy_loss,
    temperature_loss,
)
from dqnspeed.config.combinations import check
from dqnspeed.config.options import ConfigError

B, A = 6, 4


def policy() -> tuple[Tensor, Tensor]:
    """Logits, and the logarithms of the policy's probabilities."""
    logits = torch.randn(B, A, requires_grad=True)
    return logits, torch.log_softmax(logits, dim=1)


def test_the_target_is_the_soft_value_of_the_lesser_critic() -> None:
    _, log_probs = policy()
    rewards, q1, q2 = torch.randn(B), torch.randn(B, A), torch.randn(B, A)
    discounts = torch.tensor([0.0, 0.5, 0.9, 0.99, 0.99, 1.0])
    targets = critic_target(rewards, discounts, log_probs, q1, q2, torch.tensor(0.7))
    for i in range(B):
        value = 0.0
        for a in range(A):
            log_p = log_probs[i, a].item()
            value += math.exp(log_p) * (min(q1[i, a].item(), q2[i, a].item()) - 0.7 * log_p)
        assert targets[i].item() == pytest.approx(rewards[i].item() + discounts[i].item() * value, abs=1e-5)
    assert not targets.requires_grad


def test_a_critic_learns_of_the_action_taken_alone() -> None:
    q, actions, targets = torch.randn(B, A, requires_grad=True), torch.tensor([0, 1, 2, 3, 0, 1]), torch.randn(B)
    losses = critic_loss(q, actions, targets)
    losses.sum().backward()
    assert q.grad is not None
    for i in range(B):
        error = (q[i, actions[i]] - targets[i]).item()
        assert losses[i].item() == pytest.approx(error**2 / 2, abs=1e-6)
        expected = [error if a == actions[i] else 0.0 for a in range(A)]
        torch.testing.assert_close(q.grad[i], torch.tensor(expected))


def test_the_policy_loss_is_equation_12_and_moves_the_policy_alone() -> None:
    logits, log_probs = policy()
    q1, q2 = (torch.randn(B, A, requires_grad=True) for _ in range(2))
    temperature = torch.tensor(0.7, requires_grad=True)
    losses = policy_loss(log_probs, q1, q2, temperature)
    for i in range(B):
        expected = 0.0
        for a in range(A):
            log_p = log_probs[i, a].item()
            expected += math.exp(log_p) * (0.7 * log_p - min(q1[i, a].item(), q2[i, a].item()))
        assert losses[i].item() == pytest.approx(expected, abs=1e-5)
    losses.sum().backward()
    assert logits.grad is not None and logits.grad.abs().sum() > 0
    assert q1.grad is None and q2.grad is None and temperature.grad is None


def test_the_policy_loss_is_least_where_the_policy_is_the_softmax_of_the_values() -> None:
    q = torch.randn(1, A)
    best = policy_loss(torch.log_softmax(q / 0.7, dim=1), q, q, torch.tensor(0.7))
    assert best.item() == pytest.approx(-0.7 * float(torch.logsumexp(q / 0.7, dim=1)), abs=1e-5)
    for _ in range(20):
        other = policy_loss(torch.log_softmax(q / 0.7 + 0.3 * torch.randn(1, A), dim=1), q, q, torch.tensor(0.7))
        assert other >= best - 1e-6


def test_the_temperature_loss_is_equation_11_and_leads_to_the_target_entropy() -> None:
    logits, log_probs = policy()
    log_temperature = torch.tensor(math.log(0.7), requires_grad=True)
    losses = temperature_loss(log_probs, log_temperature, target_entropy=1.2)
    for i in range(B):
        expected = 0.0
        for a in range(A):
            log_p = log_probs[i, a].item()
            expected += math.exp(log_p) * -0.7 * (log_p + 1.2)
        assert losses[i].item() == pytest.approx(expected, abs=1e-5)
    losses.sum().backward()
    assert logits.grad is None


@pytest.mark.parametrize(("target", "falls"), [(0.5, True), (1.3, False)])
def test_the_temperature_falls_while_the_entropy_is_above_its_target(target: float, falls: bool) -> None:
    log_probs = torch.log(torch.tensor([[0.5, 0.3, 0.1, 0.1]]))  # an entropy of 1.17 nats
    log_temperature = torch.tensor(0.0, requires_grad=True)
    temperature_loss(log_probs, log_temperature, target).mean().backward()
    assert log_temperature.grad is not None
    assert (log_temperature.grad > 0) == falls


def parts(network: nn.Module) -> dict[str, list[nn.Parameter]]:
    """The parameters of the policy, the two critics and the temperature."""
    split: dict[str, list[nn.Parameter]] = {"policy": [], "critic 1": [], "critic 2": [], "temperature": []}
    for name, parameter in network.named_parameters():
        critic = name.startswith("critics.") and f"critic {int(name.split('.')[1]) + 1}"
        split[critic or ("temperature" if name == "log_temperature" else "policy")].append(parameter)
    return split


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("no_grad", [False, True])
def test_an_update_is_a_step_on_each_loss_by_itself(weighted: bool, no_grad: bool) -> None:
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


def test_it_acts_by_its_policy_without_asking_the_critics() -> None:
    run = make_run("env=cartpole", "algo=sac_discrete", "model.hidden=[16]")
    network = make_network(run, VECTOR)
    assert isinstance(network, PolicyCriticsNetwork)
    network.action_values = None  # type: ignore[method-assign, assignment]
    sampler = make_policy(run, VECTOR, network, CPU, np.random.default_rng(0))
    seen = np.random.default_rng(1).normal(size=(1, 5)).astype(np.float32).repeat(20_000, axis=0)
    actions, known = sampler(seen, epsilon=math.nan)
    expected = torch.softmax(network(torch.tensor(seen[:1])), dim=1)[0].detach().numpy()
    np.testing.assert_allclose(np.bincount(actions, minlength=3) / 20_000, expected, atol=0.015)
    assert np.isnan(known["values"]).all()


def test_dueling_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^model.dueling=true: algo=sac_discrete has critics with one stream each.$"):
        check(make_run("algo=sac_discrete", "model.dueling=true"))
