"""Gradients of convolutions that are computed here are those of torch."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_run
from torch import Tensor, nn

from dqnspeed.algorithms import make_learner
from dqnspeed.algorithms.gradient import GradientLearner
from dqnspeed.envs import EnvSpec
from dqnspeed.memory import Batch
from dqnspeed.networks import gradients
from dqnspeed.networks.gradients import Convolution
from dqnspeed.system import machine

computed = pytest.mark.skipif(not gradients.available(), reason="a processor without AVX512_BF16, or no compiler")

IMAGE = EnvSpec((1, 84, 84), np.dtype(np.uint8), 4, 4, largest=255.0)
SHAPES = {  # images, channels, height, width, filters, kernel, stride
    "Nature's first": (32, 4, 84, 84, 32, (8, 8), (4, 4)),
    "Nature's second": (32, 32, 20, 20, 64, (4, 4), (2, 2)),
    "Nature's third": (32, 64, 9, 9, 64, (3, 3), (1, 1)),
    "one image": (1, 2, 48, 48, 16, (6, 6), (3, 3)),
    "an odd number": (5, 3, 10, 9, 112, (3, 2), (2, 1)),
    "few numbers": (3, 1, 3, 4, 48, (1, 1), (2, 3)),
}


def random(*shape: int) -> Tensor:
    values = torch.from_numpy(np.random.default_rng(0).normal(size=shape)).to(torch.bfloat16)
    return values.contiguous(memory_format=torch.channels_last)


@computed
@pytest.mark.parametrize("threads", [1, 2, 5])
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


@computed
@pytest.mark.slow
@pytest.mark.parametrize("algo", ["dqn", "c51"])  # whose loss and gradients are one graph, and two
def test_compiled_learners_use_them_and_learn_as_without_them(algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    plain = gradients._gradients_like
    monkeypatch.setattr(gradients, "_gradients_like", lambda *args: calls.append(args) or plain(*args))
    own = learner(f"algo={algo}")
    own.update(batch())
    assert len(calls) == 3
    monkeypatch.setattr(Convolution, "_fits", lambda *_: False)
    torch.compiler.reset()
    torchs = learner(f"algo={algo}")
    torchs.update(batch())
    assert len(calls) == 3
    torch.compiler.reset()
    for name, weight in own.network.named_parameters():
        other = dict(torchs.network.named_parameters())[name]
        state, others = own.optimizer.state[weight], torchs.optimizer.state[other]
        off = (state["exp_avg"] - others["exp_avg"]).norm() / others["exp_avg"].norm()
        assert 0 <= off < 0.02, name


@computed
def test_what_they_are_not_for_is_left_to_torch() -> None:
    images = random(2, 4, 12, 12)

    def uses(layer: Convolution, images: Tensor = images, dtype: torch.dtype = torch.bfloat16) -> bool:
        with torch.autocast("cpu", dtype):
            return layer._fits(images)

    assert uses(Convolution(4, 16, 3))
    assert not uses(Convolution(4, 24, 3))
    assert not uses(Convolution(4, 16, 3), images.contiguous())
    assert not uses(Convolution(4, 16, 3), dtype=torch.float16)
    assert not uses(Convolution(4, 16, 3).requires_grad_(False))
    assert not Convolution(4, 16, 3)._fits(images)
    with torch.no_grad():
        assert not uses(Convolution(4, 16, 3))
    layer = Convolution(4, 16, 3)
    assert torch.equal(layer(images.float()), nn.Conv2d.forward(layer, images.float()))


def test_a_compiler_that_fails_leaves_them_to_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(machine, "multiplies_bf16_pairs", lambda: True)
    (tmp_path / "broken.cpp").write_text("nothing that a compiler knows")
    monkeypatch.setattr(gradients, "SOURCE", tmp_path / "broken.cpp")
    with caplog.at_level(logging.INFO):
        assert gradients._library.__wrapped__() is None
    assert "broken.cpp is not used" in caplog.text
    monkeypatch.setattr(gradients, "COMPILERS", ())
    assert gradients._library.__wrapped__() is None


@pytest.mark.parametrize(
    ("flags", "does"),
    [
        ("fpu avx512f avx512bw avx512vl avx512_bf16", True),
        ("fpu avx512f avx512bw avx512vl avx512_bf16 amx_bf16", False),
        ("fpu avx512f avx512bw avx512vl", False),
        ("", False),
    ],
)
def test_processors_are_told_by_their_flags(flags: str, does: bool, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
    assert machine.multiplies_bf16_pairs(tmp_path / "cpuinfo") is does
    assert not machine.multiplies_bf16_pairs(tmp_path / "none")
