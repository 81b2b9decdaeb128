"""Memory that training a network takes, computed from its shapes before anything is allocated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dqnspeed.algorithms import algorithm_of, make_network
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec
from dqnspeed.execution.optimizers import Optimizer
from dqnspeed.memory.buffers import SHARE_OF_FREE_MEMORY, layout_bytes
from dqnspeed.system import machine, seeding

FLOAT = 4  # bytes
LARGE = 30_000_000  # parameters


@dataclass(frozen=True)
class Size:
    """Values in a network: its parameters, and the outputs of its layers for one observation."""

    parameters: int
    activations: int


def network_size(run: RunConfig, spec: EnvSpec) -> Size:
    """The size of the network of ``algo`` and ``model``, built on the meta device and, if it is large, called there."""
    outputs = list[int]()
    with torch.device("meta"):
        parameters = sum(p.numel() for p in make_network(run, spec).parameters())
    # To call it on the meta device, torch imports its compiler, which takes seconds.
    with seeding.preserved(), torch.device("meta" if parameters > LARGE else "cpu"):
        network = make_network(run, spec)
        for layer in network.modules():
            if not list(layer.children()):
                layer.register_forward_hook(lambda _, __, output: outputs.append(_numbers(output)))
        dtype = torch.from_numpy(np.empty(0, spec.frame_dtype)).dtype
        algorithm_of(run).update_forward(network, torch.zeros(1, *spec.observation_shape, dtype=dtype))
    inputs = math.prod(spec.observation_shape)  # scaled; counted with the observations
    return Size(parameters, sum(outputs) - inputs)


def _numbers(output: Any) -> int:
    """Numbers in what a layer gives: a tensor, or several."""
    if isinstance(output, torch.Tensor):
        return output.numel()
    return sum(map(_numbers, output)) if isinstance(output, (tuple, list)) else 0


def network_bytes(run: RunConfig, size: Size) -> int:
    """Weights, gradients, optimizer state and target networks."""
    # During warm-up there is a copy of the network with its own optimizer.
    slots, copies = typed(run.optimizer, Optimizer).slots, algorithm_of(run).copies
    return int(FLOAT * (3 + slots + copies + (run.execution.precision == "bf16") / 2) * size.parameters)


def batch_bytes(run: RunConfig, spec: EnvSpec, size: Size) -> int:
    """One transition in an update: its observations as stored and as floats, all activations and their gradients."""
    stored = math.prod(spec.observation_shape) * (spec.frame_dtype.itemsize + FLOAT)
    return algorithm_of(run).observations * stored + 2 * FLOAT * size.activations


def acting_bytes(spec: EnvSpec, size: Size) -> int:
    """One environment when actions are chosen: its stack as stored and as floats, and all activations."""
    values = math.prod(spec.observation_shape)
    return values * (spec.frame_dtype.itemsize + FLOAT) + FLOAT * size.activations


def check_footprint(run: RunConfig, spec: EnvSpec, copies: int = 1) -> None:
    """Check that network, batch and environments fit into memory beside the replay.

    Args:
        run: of which there are ``copies`` on this machine, each on a GPU of its own.

    Raises:
        ConfigError: one does not; names what is needed and what is free.
    """
    algorithm = algorithm_of(run)
    if "model" not in algorithm.uses:
        return  # a table
    device = machine.pick_device(run.device)
    if device.type == "cuda":
        free, where = torch.cuda.mem_get_info(device)[0], "memory of the GPU"
    else:
        free, where = machine.available_memory() // copies, "memory beside the experience"
        free -= min(layout_bytes(algorithm.layout(run, spec)), int(SHARE_OF_FREE_MEMORY * free))
    size = network_size(run, spec)
    needs = {
        f"model={run.model.name} (model.hidden={run.model.hidden})": network_bytes(run, size),
        f"algo.batch_size={run.algo.batch_size}": run.algo.batch_size * batch_bytes(run, spec, size),
        f"num_envs={run.num_envs}": run.num_lanes * acting_bytes(spec, size),
    }
    taken = 0
    for option, needed in needs.items():
        if taken + needed > free:
            beside = f" beside {taken / 1e9:.1f} GB for the network" if taken else ""
            raise ConfigError(
                f"{option}: needs {needed / 1e9:.1f} GB{beside}, and {free / 1e9:.1f} GB of {where} can be had."
            )
        taken += needed
