"""Algorithms, one file each; ``base.py`` defines their interface. The functions below call the one of ``run.algo``."""

from __future__ import annotations

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
    """Make the network that ``algo`` trains, with the layers of ``model``."""
    return algorithm_of(run).network(run, spec)


def make_learner(run: RunConfig, spec: EnvSpec, device: torch.device) -> Learner:
    """Make the learner of ``algo``."""
    return algorithm_of(run).learner(run, spec, device)


def make_policy(
    run: RunConfig, spec: EnvSpec, network: Network, device: torch.device, rng: np.random.Generator
) -> Policy:
    """Make the policy that ``algo`` explores with."""
    return algorithm_of(run).policy(run, spec, network, device, rng)


def make_buffer(run: RunConfig, spec: EnvSpec, device: torch.device | None = None) -> Buffer:
    """Make the buffer that ``algo`` learns from, on ``device``, or on the host.

    Raises:
        ConfigError: the buffer does not fit into the host's free memory.
    """
    check_fits(run, spec, device)
    return algorithm_of(run).buffer(run, spec, device)


def check_fits(run: RunConfig, spec: EnvSpec, device: torch.device | None) -> None:
    """Raise :class:`ConfigError` if the host's memory is too small.

    A run needs memory for experience, unless ``device`` holds the experience, and for the weights that processes share.
    """
    algorithm, weights = algorithm_of(run), 0
    if run.parallelism.shares_memory:
        with seeding.preserve():
            weights = make_network(run, spec).num_bytes
    if device is None:
        check_memory(layout_bytes(algorithm.layout(run, spec)), algorithm.size(run), shared=False)
    if device is not None or run.shares_replay:
        needed = weights + layout_bytes(algorithm.arrays(run, spec, device))
        check_memory(needed, algorithm.size(run), shared=run.shares_replay)
    elif weights:
        check_memory(weights, f"parallelism.num_actors={run.parallelism.num_actors}", shared=True)


def epsilon_at(step: int, run: RunConfig) -> float:
    """Probability of a random action at agent step ``step``; NaN for a policy without epsilon."""
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
