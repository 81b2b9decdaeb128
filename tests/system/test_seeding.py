"""The global generators of this process."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from dqnspeed.system import seeding

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


def draws(device: str) -> list[float]:
    return [float(torch.rand(1, device=device)), np.random.random(), random.random()]  # noqa: NPY002


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_drawn_in_between_changes_nothing(device: str) -> None:
    seeding.seed_everything(3)
    draws(device)
    saved, expected = seeding.state_dict(), draws(device)
    seeding.load_state_dict(saved)
    with seeding.preserve():
        seeding.seed_everything(4)
        assert draws(device) != expected
    assert draws(device) == expected
