"""Noisy layers against the equations of Fortunato et al. (2018)."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from conftest import make_run
from torch import Tensor

from dqnspeed.algorithms import make_network, make_policy
from dqnspeed.config.schema import typed
from dqnspeed.envs import EnvSpec
from dqnspeed.exploration.base import Exploration
from dqnspeed.exploration.noisy import NoisyLinear


def noise(size: int) -> Tensor:
    """f of section 3: sgn(x) sqrt(|x|), of the next Gaussian numbers."""
    x = torch.randn(size)
    return torch.sign(x) * torch.sqrt(torch.abs(x))


def test_the_output_is_that_of_equations_9_to_11() -> None:
    layer, x = NoisyLinear(5, 3), torch.randn(4, 5)
    torch.nn.init.normal_(layer.weight_sigma)
    torch.nn.init.normal_(layer.bias_sigma)
    torch.manual_seed(1)
    y = layer(x)
    torch.manual_seed(1)
    eps_in, eps_out = noise(5), noise(3)
    weight = layer.weight + layer.weight_sigma * torch.outer(eps_out, eps_in)
    bias = layer.bias + layer.bias_sigma * eps_out
    torch.testing.assert_close(y, x @ weight.T + bias)
    mine = torch.autograd.grad(y.square().sum(), layer.parameters())
    theirs = torch.autograd.grad((x @ weight.T + bias).square().sum(), layer.parameters())
    torch.testing.assert_close(mine, theirs)


def test_it_begins_as_in_section_3_2() -> None:
    layer = NoisyLinear(400, 100, sigma0=0.4)
    for mean in (layer.weight, layer.bias):
        assert mean.abs().max() <= 0.05 and mean.abs().max() > 0.045  # uniform, up to 1 / sqrt(400)
    for sigma in (layer.weight_sigma, layer.bias_sigma):
        torch.testing.assert_close(sigma, torch.full_like(sigma, 0.4 / 20))


def test_noise_is_fresh_in_each_call_while_training_and_away_in_eval_mode() -> None:
    layer, x = NoisyLinear(5, 3), torch.randn(4, 5)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    torch.testing.assert_close(layer(x), x @ layer.weight.T + layer.bias, rtol=0, atol=1e-6)
    assert torch.equal(layer(x), layer(x))


def test_copies_and_processes_that_share_weights_share_no_noise() -> None:
    layer, x = NoisyLinear(5, 3), torch.randn(4, 5)
    assert not list(layer.buffers()) and set(layer.state_dict()) == {"weight", "bias", "weight_sigma", "bias_sigma"}
    twin = copy.deepcopy(layer)
    assert not torch.equal(layer(x), twin(x))
    torch.testing.assert_close(layer.eval()(x), twin.eval()(x))
    layer.share_memory()
    assert all(parameter.is_shared() for parameter in layer.parameters())


@pytest.mark.parametrize("training", [False, True])
def test_under_autocast_it_gives_what_a_linear_layer_gives(training: bool) -> None:
    layer, x = NoisyLinear(64, 3).train(training), torch.randn(4, 64)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    if not training:
        torch.testing.assert_close(y.float(), layer(x), rtol=0.05, atol=0.05)
    y.float().sum().backward()
    used = layer.parameters() if training else (layer.weight, layer.bias)
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in used)


def test_an_agent_explores_by_noise_where_epsilon_is_nothing() -> None:
    spec, run = EnvSpec((5,), np.dtype(np.float32), 3, 1, largest=1.0), make_run("env=cartpole", "exploration=noisy")
    network, seen = make_network(run, spec), np.ones((4, 5), np.float32)
    policy = make_policy(run, spec, network, torch.device("cpu"), np.random.default_rng(0))
    before = torch.get_rng_state()
    policy.warm_up(seen)
    assert torch.equal(torch.get_rng_state(), before)  # nothing random is used up
    taken = {int(policy(seen, epsilon=0.0)[0][0]) for _ in range(200)}
    network.eval()
    greedy = {int(policy(seen, epsilon=0.0)[0][0]) for _ in range(20)}
    assert len(taken) > 1 and len(greedy) == 1


def test_epsilon_does_not_rise_where_a_recipe_for_epsilon_sets_its_end() -> None:
    run = make_run("experiment=speedrun_q", "algo=rainbow")
    assert run.exploration.final > 0
    exploration = typed(run.exploration, Exploration)
    assert [exploration.epsilon_at(step) for step in (0, 20_000, 10**6)] == [0, 0, 0]
    assert exploration.sentence() == "noisy layers of 0.5" and exploration.settled().epsilon_at(10**6) == 0
    falling = typed(make_run("exploration=noisy", "exploration.start=0.5").exploration, Exploration)
    assert falling.epsilon_at(0) == 0.5 and falling.epsilon_at(10**7) == 0
