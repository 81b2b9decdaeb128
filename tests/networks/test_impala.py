"""The torso against figure 3 of Espeholt et al. (2018)."""

from __future__ import annotations

import pytest
import torch
from conftest import make_run
from torch import nn

from dqnspeed.config.options import ConfigError
from dqnspeed.networks.impala import Impala, ImpalaTorso, Residual

ATARI = (4, 84, 84)


def test_an_atari_screen_gives_the_features_and_the_weights_of_the_paper() -> None:
    torso = ImpalaTorso(ATARI)
    assert torso.units == 11 * 11 * 32 == 3872  # 84 -> 42 -> 21 -> 11
    assert torso(torch.rand(2, *ATARI)).shape == (2, 3872)
    convolutions = [layer for layer in torso.modules() if isinstance(layer, nn.Conv2d)]
    assert len(convolutions) == 15
    expected = sum(9 * c * d + d + 4 * (9 * d * d + d) for c, d in ((4, 16), (16, 32), (32, 32)))
    assert sum(p.numel() for p in torso.parameters()) == expected


@pytest.mark.parametrize("shape", [(1, 84, 84), (3, 210, 160), (4, 10, 10), (2, 7, 5), (1, 1, 1)])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_units_are_what_comes_out(shape: tuple[int, ...], layer_norm: bool) -> None:
    torso = ImpalaTorso(shape, [4, 6], layer_norm)
    features = torso(torch.randn(3, *shape))
    assert features.shape == (3, torso.units) and (features >= 0).all()
    features.sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in torso.parameters())


def test_a_residual_block_adds_to_what_it_is_given() -> None:
    block, x = Residual((3, 6, 6), layer_norm=False), torch.randn(2, 3, 6, 6)
    first, second = (layer for layer in block.modules() if isinstance(layer, nn.Conv2d))
    torch.testing.assert_close(block(x), x + second(torch.relu(first(torch.relu(x)))))
    nn.init.zeros_(second.weight)
    nn.init.zeros_(second.bias)  # type: ignore[arg-type]
    torch.testing.assert_close(block(x), x)


def test_what_is_no_image_is_refused() -> None:
    model = make_run("model=impala").model
    assert isinstance(model, Impala)
    for refuses in (model.check_shape, model.torso):
        with pytest.raises(
            ConfigError, match=r"^model=impala: takes images, and observations here are 4; use model=ml"
        ):
            refuses((4,))
    model.check_shape((1, 1, 1))
