"""Gradients of convolutions by the project's own kernel, compared with torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_run
from torch import Tensor

from dqnspeed.algorithms import make_learner
from dqnspeed.algorithms.learner import GradientLearner
from dqnspeed.buffers import Batch
from dqnspeed.envs import EnvSpec
from dqnspeed.networks import weight_gradient
from dqnspeed.networks.weight_gradient import Convolution
from dqnspeed.system import machine

IMAGE = EnvSpec((1, 84, 84), np.dtype(np.uint8), 4, 4, largest=255.0)
SHAPES = {  # images, channels, height, width, filters, kernel, stride
    "Nature's first": (32, 4, 84, 84, 32, (8, 8), (4, 4)),
    "Nature's second": (32, 32, 20, 20, 64, (4, 4), (2, 2)),
    "Nature's third": (32, 64, 9, 9, 64, (3, 3), (1, 1)),
    "one image": (1, 2, 48, 48, 16, (6, 6), (3, 3)),
    "an odd number": (5, 3, 10, 9, 112, (3, 2), (2, 1)),
    "few numbers": (3, 1, 3, 4, 48, (1, 1), (2, 3)),
}


@pytest.fixture(scope="module")
def computed() -> None:
    if not weight_gradient.available():
        pytest.skip("a processor without AVX512_BF16, or no compiler")


def random(*shape: int) -> Tensor:
    values = torch.from_numpy(np.random.default_rng(0).normal(size=shape)).to(torch.bfloat16)
    return values.contiguous(memory_format=torch.channels_last)


@pytest.mark.usefixtures("computed")
@pytest.mark.parametrize("threads", [1, 5])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_gradients_are_those_of_torch_in_float32(
    shape: tuple[int, int, int, int, int, tuple[int, int], tuple[int, int]], threads: int
) -> None:
    count, channels, height, width, filters, kernel, stride = shape
    images = random(count, channels, height, width)
    weight = torch.zeros(filters, channels, *kernel, requires_grad=True)
    bias = torch.zeros(filters, requires_grad=True)
    result = torch.conv2d(images.float(), weight, bias, stride)
    of_result = random(*result.shape)
    expected = torch.autograd.grad(result, [weight, bias], of_result.float())
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        got = torch.ops.dqnspeed.weight_gradient(images, of_result, kernel, stride)
        again = torch.ops.dqnspeed.weight_gradient(images.contiguous(), of_result.contiguous(), kernel, stride)
    finally:
        torch.set_num_threads(before)
    for one, same, right in zip(got, again, expected, strict=True):
        assert one.dtype == torch.float32 and torch.equal(one, same)  # however they are laid out, and each time
        torch.testing.assert_close(one, right, rtol=1e-5, atol=1e-5 * float(right.abs().max()))


def learner(*overrides: str) -> GradientLearner:
    torch.manual_seed(0)
    options = ["model=nature", "execution=lean", "execution.precision=bf16", "execution.compile=true", *overrides]
    made = make_learner(make_run(*options), IMAGE, torch.device("cpu"))
    assert isinstance(made, GradientLearner)
    return made


def batch() -> Batch:
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.integers(0, 256, (2, 16, 4, 84, 84), np.uint8))
    rewards = torch.from_numpy(rng.normal(size=16).astype(np.float32))
    return Batch(images[0], torch.arange(16) % 4, rewards, images[1], torch.full((16,), 0.9))


LEARNERS = {  # the loss and gradients of the first are one graph, and of the second two
    "dqn": ["algo=dqn"],
    "c51": ["algo=c51"],
    "layer norm, whose results are float32": ["algo=dqn", "model.layer_norm=true"],
}


@pytest.mark.usefixtures("computed")
@pytest.mark.integration
@pytest.mark.parametrize("options", LEARNERS.values(), ids=LEARNERS)
def test_compiled_learners_use_them_and_learn_as_without_them(options: list[str]) -> None:
    own, torchs = learner(*options), learner(*options)
    for layer in torchs.network.modules():
        if isinstance(layer, Convolution):
            layer.quick = False
    for one, expected in ((own, 3), (torchs, 0)):
        torch.compiler.reset()
        one.warm_up(batch())  # the compiler calls them, too
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            one.update(batch())
        assert sum(event.name == "dqnspeed::weight_gradient" for event in profile.events()) == expected
    torch.compiler.reset()
    for name, weight in own.network.named_parameters():
        other = dict(torchs.network.named_parameters())[name]
        state, others = own.optimization.optimizer.state[weight], torchs.optimization.optimizer.state[other]
        assert (state["exp_avg"] - others["exp_avg"]).norm() < 0.02 * others["exp_avg"].norm(), name


def quick(*overrides: str) -> list[bool]:
    return [layer.quick for layer in learner(*overrides).network.modules() if isinstance(layer, Convolution)]


def test_they_are_for_compiled_bf16_in_nhwc_where_they_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(weight_gradient, "available", lambda: asked.append(True) or True)
    assert quick() == [True] * 3
    assert quick("model.conv=[[16,8,4],[24,4,2]]") == [True, False]
    asked.clear()
    for others in ("compile=false", "precision=fp32", "channels_last=false"):
        assert quick(f"execution.{others}") == [False] * 3
    assert not asked
    monkeypatch.setattr(weight_gradient, "available", lambda: False)
    assert quick() == [False] * 3


def test_a_compiler_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(machine, "multiplies_bf16_pairs", lambda: True)
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no such option >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    monkeypatch.setattr(weight_gradient, "COMPILERS", ())
    assert weight_gradient._function.__wrapped__() is None
    assert f"torch's own gradients are used: {broken}: no such option" in caplog.text
    monkeypatch.delenv("CXX")
    assert weight_gradient._function.__wrapped__() is None
    assert "torch's own gradients are used: there is no compiler" in caplog.text
