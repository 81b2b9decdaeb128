"""How much memory a network takes while it is trained, told by its shapes before anything is allocated."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import ACTOR_CRITIC, ModelConfig, RunConfig
from dqnspeed.envs import EnvSpec
from dqnspeed.memory import run_layout
from dqnspeed.memory.buffers import SHARE_OF_FREE_MEMORY, layout_bytes
from dqnspeed.system import machine

FLOAT = 4  # bytes


@dataclass(frozen=True)
class Size:
    """Numbers in a network: its parameters, and what its layers put out for one observation."""

    parameters: int
    activations: int


def network_size(run: RunConfig, spec: EnvSpec) -> Size:
    """The size of the network of ``model`` with the heads of ``algo``."""
    model, shape = run.model, spec.observation_shape
    sizes, channels, sides = list[Size](), shape[0], list(shape[1:])
    for filters, kernel, stride in model.conv:
        sides = [(side - kernel) // stride + 1 for side in sides]
        sizes += _layer(filters * (channels * kernel**2 + 1), filters * math.prod(sides), model)
        channels = filters
    units = [channels * math.prod(sides), *model.hidden]
    hidden = [size for i, o in itertools.pairwise(units) for size in _layer(o * (i + 1), o, model)]
    heads = [spec.num_actions] + [1] * (run.algo.name in ACTOR_CRITIC or model.dueling)
    streams = 2 if model.dueling else 1  # which share nothing but the convolutions
    sizes += hidden * streams + [Size(o * (units[-1] + 1), o) for o in heads]
    return Size(sum(s.parameters for s in sizes), sum(s.activations for s in sizes))


def _layer(parameters: int, outputs: int, model: ModelConfig) -> Iterator[Size]:
    """A layer, its norm and its activation; the norms have a weight and a bias for each output."""
    yield Size(parameters, outputs)
    if model.layer_norm:
        yield Size(2 * outputs, outputs)
    yield Size(0, outputs)


def network_bytes(run: RunConfig, spec: EnvSpec) -> int:
    """Weights, their gradients, the optimizer's numbers and the target network."""
    optimizer = run.optimizer
    slots = 1 + (optimizer.momentum > 0) + optimizer.centered if optimizer.name == "rmsprop" else 2
    # While it is warmed up, a copy with its own optimizer stands beside the network.
    copies = 3 + slots + run.has_replay + (run.execution.precision == "bf16") / 2
    return int(FLOAT * copies * network_size(run, spec).parameters)


def batch_bytes(run: RunConfig, spec: EnvSpec) -> int:
    """One transition in an update: its observations as they come and as floats, all activations and their gradients."""
    values, size = math.prod(spec.observation_shape), network_size(run, spec)
    stored = values * (spec.frame_dtype.itemsize + FLOAT)
    observations = 1 if run.algo.rollout_steps is not None else 2  # that which was acted on, and the next
    return observations * stored + 2 * FLOAT * size.activations


def acting_bytes(run: RunConfig, spec: EnvSpec) -> int:
    """One environment when actions are chosen: its stack as it comes and as floats, and two layers at a time."""
    values = math.prod(spec.observation_shape)
    return values * (spec.frame_dtype.itemsize + FLOAT) + FLOAT * network_size(run, spec).activations


def check_footprint(run: RunConfig, spec: EnvSpec) -> None:
    """Refuse a network, a batch or environments that do not fit into memory beside the replay.

    Raises:
        ConfigError: with what is asked and what can be had.
    """
    if run.algo.name == "q_learning":
        return
    device = machine.pick_device(run.device)
    if device.type == "cuda":
        free, where = torch.cuda.mem_get_info(device)[0], "memory of the GPU"
    else:
        free, where = machine.available_memory(), "memory beside the experience"
        free -= min(layout_bytes(run_layout(run, spec)), int(SHARE_OF_FREE_MEMORY * free))
    needs = {
        f"model={run.model.name} (model.hidden={run.model.hidden})": network_bytes(run, spec),
        f"algo.batch_size={run.algo.batch_size}": run.algo.batch_size * batch_bytes(run, spec),
        f"num_envs={run.num_envs}": run.num_lanes * acting_bytes(run, spec),
    }
    taken = 0
    for option, needed in needs.items():
        if taken + needed > free:
            beside = f" beside {taken / 1e9:.1f} GB for the network" if taken else ""
            raise ConfigError(
                f"{option}: needs {needed / 1e9:.1f} GB{beside}, and {free / 1e9:.1f} GB of {where} can be had."
            )
        taken += needed
