"""The place of experience, by the memory that it takes, computed before anything is allocated."""

from __future__ import annotations

import bisect

import torch

from dqnspeed.algorithms import algorithm_of, with_size
from dqnspeed.buffers.storage import SHARE_OF_FREE_MEMORY, layout_bytes
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.system import machine


def buffer_device(run: RunConfig, spec: EnvSpec) -> torch.device | None:
    """The place of experience: ``replay.device``, and for ``auto`` the learner's GPU if it fits there; ``None``: on
    the host.

    Raises:
        ConfigError: it must be on a GPU and does not fit; names what is needed, what is free and what would fit.
    """
    device = machine.pick_device(run.device)
    if device.type != "cuda" or run.replay.device == "cpu":
        return None
    asked, free = _experience(run, spec), int(SHARE_OF_FREE_MEMORY * machine.free_gpu_memory(device))
    if asked <= free:
        return device
    if run.replay.device == "auto" and not run.execution.graph:
        return None
    size, number, unit = algorithm_of(run).size(run)
    wanted = "replay.device=cuda" if run.replay.device == "cuda" else "execution.graph=true"
    fits = bisect.bisect_right(range(1, number), free, key=lambda fewer: _experience(with_size(run, size, fewer), spec))
    raise ConfigError(
        f"{wanted}: {size}={number} needs {machine.format_bytes(asked)} of the GPU's memory, and "
        f"{machine.format_bytes(free)} can be had; at most {fits} {unit} would fit."
    )


def _experience(run: RunConfig, spec: EnvSpec) -> int:
    return layout_bytes(algorithm_of(run).layout(run, spec))
