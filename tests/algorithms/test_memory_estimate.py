"""The place of experience, by the memory that it takes."""

from __future__ import annotations

import pytest
import torch
from conftest import make_run

from dqnspeed.algorithms.memory_estimate import buffer_device
from dqnspeed.config.options import ConfigError
from dqnspeed.envs import describe
from dqnspeed.system import machine

GPU = torch.device("cuda")


def test_experience_goes_to_a_gpu_if_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (make_run(f"replay.buffer_size={size}") for size in (10**4, 10**6))
    there = make_run("replay.buffer_size=1000000", "replay.device=cuda")
    spec = describe(small)
    monkeypatch.setattr(machine, "pick_device", lambda name: GPU)
    monkeypatch.setattr(machine, "free_gpu_memory", lambda device: 2 * 10**9)
    assert buffer_device(small, spec) == GPU and buffer_device(large, spec) is None
    with pytest.raises(ConfigError, match=r"^replay\.device=cuda: .* at most \d+ transitions would fit\.$") as refused:
        buffer_device(there, spec)
    most = int(str(refused.value).split("at most ")[1].split()[0])
    assert buffer_device(make_run(f"replay.buffer_size={most}", "replay.device=cuda"), spec) == GPU
