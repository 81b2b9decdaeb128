"""Choice of the device of experience by its size, before anything is allocated."""

from __future__ import annotations

import torch

from dqnspeed.algorithms import algorithm_of
from dqnspeed.buffers.storage import SHARE_OF_FREE_MEMORY, layout_bytes
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.system import machine


def buffer_device(run: RunConfig, spec: EnvSpec) -> torch.device | None:
    """Device of experience: ``replay.device``, and for ``auto`` the learner's GPU if experience fits there.

    ``None`` is the host.

    Raises:
        ConfigError: experience must be on a GPU and does not fit.
    """
    device = machine.pick_device(run.device)
    if device.type != "cuda" or run.replay.device == "cpu":
        return None
    needed = layout_bytes(algorithm_of(run).layout(run, spec))
    free = int(SHARE_OF_FREE_MEMORY * machine.free_gpu_memory(device))
    if needed <= free:
        return device
    if run.replay.device == "auto" and not run.execution.graph:
        return None
    wanted = "replay.device=cuda" if run.replay.device == "cuda" else "execution.graph=true"
    raise ConfigError(
        f"{wanted}: {algorithm_of(run).size(run)} needs {machine.format_bytes(needed)} of the GPU's memory, and "
        f"{machine.format_bytes(free)} can be had. Use a smaller number."
    )
