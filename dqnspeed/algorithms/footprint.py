"""Memory that training a network takes, computed from its shapes before anything is allocated."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dqnspeed.algorithms import algorithm_of, make_network, with_size
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec, emulator_device, emulator_spares
from dqnspeed.execution.optimizers import Optimizer
from dqnspeed.memory.buffers import SHARE_OF_FREE_MEMORY, layout_bytes
from dqnspeed.system import machine, seeding

FLOAT = 4  # bytes
LARGE = 30_000_000  # parameters
CUDA_CONTEXT = 500_000_000  # bytes that a process takes of a GPU before it has any tensor, roughly
CONSOLE = 250_000  # bytes that a game of the emulator takes of a GPU, with its screens, roughly


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
    less = (run.execution.precision == "bf16") / 2  # a copy with fewer bits
    return int(FLOAT * (3 + slots + copies + less) * size.parameters)


def batch_bytes(run: RunConfig, spec: EnvSpec, size: Size) -> int:
    """One transition in an update: its observations as stored and as floats, all activations and their gradients, and
    what the algorithm has between."""
    algorithm, stored = algorithm_of(run), math.prod(spec.observation_shape) * (spec.frame_dtype.itemsize + FLOAT)
    return algorithm.observations * stored + FLOAT * (2 * size.activations + algorithm.between)


def acting_bytes(spec: EnvSpec, size: Size) -> int:
    """One environment when actions are chosen: its stack as stored and as floats, and all activations."""
    values = math.prod(spec.observation_shape)
    return values * (spec.frame_dtype.itemsize + FLOAT) + FLOAT * size.activations


def needs(run: RunConfig, spec: EnvSpec) -> dict[str, int]:
    """Bytes that network, batches and acting take, by the options that decide on them."""
    if "model" not in algorithm_of(run).uses:
        return {}  # a table
    size, on_gpu = network_size(run, spec), machine.pick_device(run.device).type == "cuda"
    batches = 1 + run.execution.graph  # a graph has memory of its own
    required = {
        f"model={run.model.name} (model.hidden={run.model.hidden})": network_bytes(run, size),
        f"algo.batch_size={run.algo.batch_size}": batches * run.algo.batch_size * batch_bytes(run, spec, size),
        f"num_envs={run.num_envs}": run.num_lanes * (acting_bytes(spec, size) + on_gpu * _game_bytes(run, spec)),
    }
    if on_gpu and run.parallelism.shares_memory:
        required[f"parallelism.num_actors={run.parallelism.num_actors}"] = run.parallelism.num_actors * CUDA_CONTEXT
    return required


def _game_bytes(run: RunConfig, spec: EnvSpec) -> int:
    """One environment where the learner's GPU is, if it is played there: by the emulator."""
    if emulator_device(run) != "cuda":
        return 0
    consoles = 1 + emulator_spares(run) / run.num_envs
    return int(consoles * CONSOLE) + math.prod(spec.observation_shape) * spec.frame_dtype.itemsize


def memory_device(run: RunConfig, spec: EnvSpec) -> torch.device | None:
    """Where experience is kept: ``replay.device``, and for ``auto`` the learner's GPU if it fits beside the rest;
    ``None``: on the host."""
    device = machine.pick_device(run.device)
    if device.type != "cuda" or run.replay.device == "cpu":
        return None
    left_open = run.replay.device == "auto" and not run.execution.graph
    if left_open and _room_on(device, needs(run, spec)) < _experience(run, spec):
        return None
    return device


def check_footprint(run: RunConfig, spec: EnvSpec) -> None:
    """Check that network, batch and environments fit into memory beside the experience, or on a GPU with it.

    Raises:
        ConfigError: one does not; names what is needed and what is free.
    """
    device, required = machine.pick_device(run.device), needs(run, spec)
    if device.type == "cuda":
        free, where = machine.free_gpu_memory(device), "memory of the GPU"
    else:
        free, where = machine.available_memory(), "memory beside the experience"
        free -= min(_experience(run, spec), int(SHARE_OF_FREE_MEMORY * free))
    taken = 0
    for option, needed in required.items():
        if taken + needed > free:
            beside = f" beside {taken / 1e9:.1f} GB for the network" if taken else ""
            raise ConfigError(
                f"{option}: needs {needed / 1e9:.1f} GB{beside}, and {free / 1e9:.1f} GB of {where} can be had."
            )
        taken += needed
    asked, room = _experience(run, spec), _room_on(device, required) if device.type == "cuda" else 0
    if asked > room and (run.replay.device == "cuda" or run.execution.graph):
        size, number, unit = algorithm_of(run).size(run)
        wanted = "replay.device=cuda" if run.replay.device == "cuda" else "execution.graph=true"
        fits = bisect.bisect_right(
            range(1, number), room, key=lambda fewer: _experience(with_size(run, size, fewer), spec)
        )
        raise ConfigError(
            f"{wanted}: {size}={number} needs {asked / 1e9:.1f} GB of the GPU's memory, and "
            f"{room / 1e9:.1f} GB can be had; at most {fits} {unit} would fit."
        )


def _experience(run: RunConfig, spec: EnvSpec) -> int:
    return layout_bytes(algorithm_of(run).layout(run, spec))


def _room_on(device: torch.device, beside: Mapping[str, int]) -> int:
    """Bytes of a GPU that experience may take beside the rest of a run."""
    return max(0, int(SHARE_OF_FREE_MEMORY * machine.free_gpu_memory(device)) - sum(beside.values()))
