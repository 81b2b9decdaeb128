from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import make_run

from dqnspeed.envs import EnvSpec
from dqnspeed.networks.convolutional import Convolutional, LayerNorm
from dqnspeed.networks.heads import PolicyValueNetwork, QNetwork
from dqnspeed.networks.preprocess import Preprocess


def shapes(*observation: int, num_actions: int = 3) -> EnvSpec:
    """An environment with these observations; images are bytes."""
    images = len(observation) == 3
    dtype = np.dtype(np.uint8 if images else np.float32)
    return EnvSpec(observation, dtype, num_actions, stack=1, largest=255.0 if images else 1.0)


def count(network: torch.nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def test_nature_is_the_network_of_the_paper() -> None:
    network = QNetwork(make_run(), EnvSpec((1, 84, 84), np.dtype(np.uint8), 6, 4, largest=255.0))
    # 32@8x8/4, 64@4x4/2, 64@3x3/1, 512 units, 6 actions: Mnih et al. 2015, Methods
    assert count(network) == (4 * 64 * 32 + 32) + (32 * 16 * 64 + 64) + (64 * 9 * 64 + 64) + (3136 * 512 + 512) + 3078
    assert network(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, 6)


@pytest.mark.parametrize("model", ["nature", "small"])
@pytest.mark.parametrize("options", [[], ["model.dueling=true"], ["model.layer_norm=true"], ["model.background=true"]])
def test_options_give_finite_values_and_gradients(model: str, options: list[str]) -> None:
    network = QNetwork(make_run(f"model={model}", *options), shapes(2, 84, 84))
    q = network(torch.randint(0, 256, (5, 2, 84, 84), dtype=torch.uint8))
    q.sum().backward()
    assert torch.isfinite(q).all()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in network.parameters())


@pytest.mark.parametrize("dueling", [False, True])
def test_the_last_layer_of_action_values_computes_in_float32_where_the_rest_is_bf16(dueling: bool) -> None:
    network = QNetwork(make_run("model=small", f"model.dueling={dueling}"), shapes(2, 84, 84))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        q = network(torch.randint(0, 256, (64, 2, 84, 84), dtype=torch.uint8))
        features = network.features(network.preprocess(torch.zeros(1, 2, 84, 84)))
    assert q.dtype == torch.float32 and features.dtype == torch.bfloat16
    assert (q != q.bfloat16().float()).float().mean() > 0.9  # rounded to bf16 nothing would differ


def test_actor_critics_leave_the_torso_of_others_as_it_was_made() -> None:
    class Own(Convolutional):
        orthogonal = False

    run, shape = make_run("model=small"), (2, 84, 84)
    torch.manual_seed(1)
    torso = Own(**vars(run.model)).torso(shape)[0]
    for kind, kept in ((Own, True), (Convolutional, False)):
        torch.manual_seed(1)
        network = PolicyValueNetwork(replace(run, model=kind(**vars(run.model))), shapes(*shape))
        assert torch.equal(network.features[0].weight, torso[0].weight) is kept
        layer = network.hidden[0].weight
        torch.testing.assert_close(layer @ layer.T, 2 * torch.eye(len(layer)), rtol=0, atol=1e-4)


@pytest.mark.parametrize("subtract", [False, True])
@pytest.mark.parametrize("scale", [64.0, 255.0])
def test_preprocessing_in_bf16_gives_the_numbers_of_float32(subtract: bool, scale: float) -> None:
    preprocess = Preprocess((2, 4, 128), scale, subtract)
    frames = torch.arange(1024, dtype=torch.int32).view(1, 2, 4, 128).remainder(256).to(torch.uint8)
    preprocess.measure(frames.flip(3)[:, :1])
    plain = preprocess(frames)
    with torch.autocast("cpu", torch.bfloat16):
        fast = preprocess(frames)
    assert plain.dtype == torch.float32
    assert fast.dtype == (torch.bfloat16 if scale == 64 else torch.float32)  # only where nothing is rounded
    assert torch.equal(fast.float(), plain)


@pytest.mark.parametrize("model", ["small", "impala"])
@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("compiling", [False, True])
def test_the_layout_changes_nothing(
    model: str, background: bool, compiling: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(f"model={model}", "model.layer_norm=true", f"model.background={background}")
    network = PolicyValueNetwork(run, shapes(2, 40, 48))
    frames = torch.randint(0, 256, (5, 2, 40, 48), dtype=torch.uint8)
    network.preprocess.measure(frames[:, :1])
    for layer in network.modules():
        if isinstance(layer, torch.nn.LayerNorm):  # each weight another
            torch.nn.init.normal_(layer.weight)
            torch.nn.init.normal_(layer.bias)
    results = []
    for channels_last in (False, True):
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiling and channels_last)  # noqa: B023
        network.place(torch.device("cpu"), channels_last)
        network.zero_grad()
        logits, values = network.policy_and_value(frames)
        (logits.square().sum() + values.sum()).backward()
        results.append([logits.detach(), values.detach(), *(p.grad.clone() for p in network.parameters())])  # type: ignore[union-attr]
    for plain, fast in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-4 * float(plain.abs().max()))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("compiling", [False, True])
def test_preprocessing_gives_the_same_numbers_in_either_layout_and_leaves_observations_alone(
    channels: int, dtype: torch.dtype, compiling: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = torch.randint(0, 256, (5, channels, 6, 8)).to(dtype)
    given, preprocess = images.clone(), Preprocess((channels, 6, 8), 64.0, subtract=True)
    preprocess.measure(torch.randint(0, 256, (5, channels, 6, 8)))
    plain = preprocess(images)
    preprocess.channels_last = True
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiling)
    monkeypatch.setattr("dqnspeed.networks.preprocess.AVX512", True)
    fast = preprocess(images)
    assert torch.equal(plain, fast) and torch.equal(images, given)
    assert plain.is_contiguous() and fast.is_contiguous(memory_format=torch.channels_last)


def test_images_keep_their_layout_through_layer_normalization() -> None:
    layer, images = LayerNorm((6, 5, 4)), torch.rand(3, 6, 5, 4)
    assert layer(images).is_contiguous()
    assert layer(images.contiguous(memory_format=torch.channels_last)).is_contiguous(memory_format=torch.channels_last)
