"""Memory of buffers: shared with processes, checked before it is allocated, and estimated."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import make_run

from dqnspeed.algorithms import algorithm_of, check_fits, make_network
from dqnspeed.buffers import SharedStorage
from dqnspeed.buffers.storage import layout_bytes
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import describe
from dqnspeed.system import machine


def test_shared_memory_that_cannot_be_had_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(tensor: torch.Tensor) -> None:
        raise RuntimeError("unable to allocate shared memory(shm) for file </torch_1>: No space left on device (28)")

    monkeypatch.setattr(torch.Tensor, "share_memory_", full)
    with pytest.raises(
        ConfigError, match=r"transport=shared_memory: 100 bytes of .* could not be had \(.*No space left"
    ):
        SharedStorage({"frames": ((10, 10), np.dtype(np.uint8))})


def test_frames_on_their_way_take_little_beside_stored_frames() -> None:
    """Docker's containers have 64 MB of shared memory unless they ask for more."""
    run = make_run("parallelism=process", "num_envs=8", "replay.buffer_size=1000000")
    algorithm, spec = algorithm_of(run), describe(run)
    assert layout_bytes(algorithm.arrays(run, spec, None)) < 2**25
    assert layout_bytes(algorithm.layout(run, spec)) > 7e9


FREE = 2**26  # the /dev/shm of one of Docker's containers


@pytest.mark.parametrize(
    "overrides",
    [
        "",
        "num_envs=3",
        "parallelism=process num_envs=200",  # each of which writes some frames ahead, whatever the size of the replay
        "parallelism=process num_envs=3 algo=ppo algo.num_steps=1000",
    ],
)
def test_a_buffer_that_is_too_large_is_refused(overrides: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(*overrides.split())
    spec, option = describe(run), algorithm_of(run).size(run).partition("=")[0]
    shared = "parallelism=process" in overrides and Path("/dev/shm").is_dir()
    monkeypatch.setattr(machine, "available_memory", lambda: 2**60 if shared else FREE)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=FREE))

    def sized(size: int) -> RunConfig:
        if option == "num_envs":
            return replace(run, num_envs=size)
        return replace(run, replay=replace(run.replay, buffer_size=size))

    with pytest.raises(ConfigError, match=rf"^{option}=1000000000: needs .* can be had\. Use a smaller number\."):
        check_fits(sized(10**9), spec, None)
    check_fits(sized(2 * run.total_envs if option != "num_envs" else 1), spec, None)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs /dev/shm")
@pytest.mark.parametrize("transport", ["shared_memory", "queue"])
def test_shared_memory_must_hold_the_weights_too(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run("experiment=tweaked_process", f"parallelism.transport={transport}")
    spec, device = describe(run), None
    arrays = layout_bytes(algorithm_of(run).arrays(run, spec, device)) if run.shares_replay else 0
    weights = make_network(run, spec).num_bytes
    assert 6_000_000 < weights < 7_000_000
    free = (arrays + weights) / 0.9

    def check(free: float) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
        check_fits(run, spec, device)

    check(1.01 * free)
    with pytest.raises(ConfigError, match=r"of shared memory \(/dev/shm\) and .* can be had.* with --shm-size\.$"):
        check(0.99 * free)
    with pytest.raises(
        ConfigError, match=r"=\d+: needs \d+\.\d MB of shared .* and 3\.6 MB can be had\. Use .* A container"
    ):
        check(4_000_000)  # where no size of the buffers would do
