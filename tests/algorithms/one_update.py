"""Learners, batches, and the expected optimizer step, for the tests of learners."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch
from conftest import make_run, on_cpu
from torch import Tensor, nn

from dqnspeed.algorithms import make_learner
from dqnspeed.algorithms.learner import GradientLearner
from dqnspeed.buffers import Batch
from dqnspeed.envs import EnvSpec

CPU = torch.device("cpu")
VECTOR = EnvSpec((5,), np.dtype(np.float32), 3, 1, largest=1.0)
SIZE = 16
SEED = 5  # of the random numbers of an update


def make_batch(spec: EnvSpec, size: int = SIZE, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)

    def observations() -> np.ndarray:
        if spec.frame_dtype == np.uint8:
            return rng.integers(0, 256, (size, *spec.observation_shape), np.uint8)
        return rng.normal(size=(size, *spec.observation_shape)).astype(np.float32)

    batch: Batch = on_cpu(
        Batch(
            observations(),
            rng.integers(spec.num_actions, size=size),
            rng.normal(size=size).astype(np.float32),
            observations(),
            np.where(rng.random(size) < 0.3, 0, 0.97).astype(np.float32),
        )
    )
    return batch


def learner_of(*overrides: str) -> GradientLearner:
    """A learner with a small network, whose target is another network than the one it trains."""
    run = make_run("env=cartpole", "model.hidden=[16]", "algo.max_grad_norm=0.5", "optimizer.lr=1e-3", *overrides)
    torch.manual_seed(0)
    learner = make_learner(run, VECTOR, CPU)
    assert isinstance(learner, GradientLearner) and learner.target is not None
    with torch.no_grad():
        for parameter in [*learner.network.parameters(), *learner.target.network.parameters()]:
            parameter += 0.3 * torch.randn_like(parameter)
    return learner


def losses_of(learner: GradientLearner, batches: Iterable[Batch]) -> list[float]:
    """The loss of an update on each batch."""
    losses = []
    for batch in batches:
        learner.update(batch)
        losses.append(learner.stats()["train/loss"])
    return losses


def batch_of(weighted: bool) -> tuple[Batch, list[Tensor]]:
    """A batch, and the errors that its replay receives."""
    batch, told = make_batch(VECTOR), list[Tensor]()
    if weighted:
        batch.weights = torch.from_numpy(np.random.default_rng(1).uniform(0.1, 1, SIZE).astype(np.float32))
        batch.update_priorities = told.append
    return batch, told


def check_update(learner: GradientLearner, weighted: bool, transition: Callable[..., tuple[Tensor, float]]) -> None:
    """Check that an update is Adam's step on the weighted mean of losses, and that the replay receives the errors.

    Args:
        transition: gives the loss and the size of the error of transition ``i`` of ``batch``, by ``online`` and
            ``target``, which are copies of the learner's networks.
    """
    assert learner.target is not None
    batch, told = batch_of(weighted)
    online, target = copy.deepcopy(learner.network), copy.deepcopy(learner.target.network)
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3, eps=learner.run.optimizer.eps)
    rows = [transition(i, batch, online, target) for i in range(SIZE)]
    weights = np.ones(SIZE) if batch.weights is None else batch.weights
    loss = torch.stack([float(w) * row[0] for w, row in zip(weights, rows, strict=True)]).sum() / SIZE
    loss.backward()
    nn.utils.clip_grad_norm_(online.parameters(), 0.5)
    optimizer.step()

    torch.manual_seed(SEED)
    learner.update(batch)
    assert_same(learner.network, online)
    assert learner.stats()["train/loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert all(p.grad is None for p in learner.target.network.parameters())
    if weighted:
        assert told[0].dtype == torch.float32
        np.testing.assert_allclose(told[0], [row[1] for row in rows], rtol=1e-3, atol=1e-5)


def assert_same(ours: nn.Module, expected: nn.Module) -> None:
    for (name, a), b in zip(ours.named_parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6, msg=lambda told, name=name: f"{name}: {told}")


def observation(batch: Batch, i: int, after: bool = False) -> Tensor:
    """The observation of transition ``i``, ``(1, 5)``, or the next one."""
    return (batch.next_observations if after else batch.observations)[i : i + 1]
