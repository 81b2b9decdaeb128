"""Algorithms, one file each; ``base.py`` defines their interface. The functions below call the one of ``run.algo``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from dqnspeed.algorithms.base import Algorithm, Learner
from dqnspeed.buffers.base import Buffer
from dqnspeed.buffers.storage import check_memory, layout_bytes
from dqnspeed.config.schema import RunConfig, typed
from dqnspeed.envs import EnvSpec
from dqnspeed.exploration.policy import Policy
from dqnspeed.networks.base import Network
from dqnspeed.system import seeding


def algorithm_of(run: RunConfig) -> Algorithm:
    """``run.algo``, typed as an algorithm."""
    return typed(run.algo, Algorithm)


def make_network(run: RunConfig, spec: EnvSpec) -> Network:
    """The network that ``algo`` trains, with the layers of ``model``."""
    return algorithm_of(run).network(run, spec)


def make_learner(run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
    """The learner of ``algo``."""
    return algorithm_of(run).learner(run, spec, device)


def make_policy(
    run: RunConfig, spec: EnvSpec, network: Network, device: torch.device, rng: np.random.Generator
) -> Policy:
    """The policy that ``algo`` explores with."""
    return algorithm_of(run).policy(run, spec, network, device, rng)


def make_buffer(run: RunConfig, spec: EnvSpec, device: torch.device | None = None) -> Buffer:
    """The memory that ``algo`` learns from, held on ``device``, or on the host.

    Raises:
        ConfigError: it does not fit into the host's free memory.
    """
    check_fits(run, spec, device)
    return algorithm_of(run).buffer(run, spec, device)


def check_fits(run: RunConfig, spec: EnvSpec, device: torch.device | None) -> None:
    """Raise :class:`ConfigError` if the host's memory is too small.

    A run needs memory for experience, unless ``device`` holds it, and for the weights that processes share."""
    option, asked, unit = algorithm_of(run).size(run)
    weights = 0
    if run.parallelism.shares_memory:
        with seeding.preserve():
            weights = make_network(run, spec).num_bytes

    def held(size: int) -> int:
        sized = with_size(run, option, size)
        return layout_bytes(algorithm_of(sized).layout(sized, spec))

    def written(size: int) -> int:
        sized = with_size(run, option, size)
        return weights + layout_bytes(algorithm_of(sized).arrays(sized, spec, device))

    if device is None:
        check_memory(held, option, asked, unit, shared=False)
    if device is not None or run.shares_replay:
        check_memory(written, option, asked, unit, shared=run.shares_replay)
    elif weights:
        actors = run.parallelism.num_actors
        check_memory(lambda _: weights, "parallelism.num_actors", actors, "actors", shared=True)


def with_size(run: RunConfig, option: str, value: int) -> RunConfig:
    """``run`` with another value of ``option``, KEY or GROUP.KEY."""
    group, _, key = option.rpartition(".")
    changed: dict[str, Any] = {group: replace(getattr(run, group), **{key: value})} if group else {key: value}
    return replace(run, **changed)


def epsilon_at(step: int, run: RunConfig) -> float:
    """The chance of a random action at agent step ``step``, NaN for a policy without epsilon."""
    return algorithm_of(run).epsilon_at(run, step)


__all__ = [
    "Algorithm",
    "Learner",
    "algorithm_of",
    "check_fits",
    "epsilon_at",
    "make_buffer",
    "make_learner",
    "make_network",
    "make_policy",
]
