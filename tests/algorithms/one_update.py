"""A learner, a batch, and the expected optimizer step, for the tests of learners."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from conftest import make_run
from test_dqn import CPU, VECTOR, make_batch
from torch import Tensor, nn

from dqnspeed.algorithms import make_learner
from dqnspeed.algorithms.learner import GradientLearner
from dqnspeed.buffers import Batch

SIZE = 16
SEED = 5  # of what an update draws


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


def batch_of(weighted: bool) -> tuple[Batch, list[Tensor]]:
    """A batch, and the errors that its replay receives."""
    batch, told = make_batch(VECTOR, SIZE), list[Tensor]()
    if weighted:
        batch.weights = torch.from_numpy(np.random.default_rng(1).uniform(0.1, 1, SIZE).astype(np.float32))
        batch.reprioritize = told.append
    return batch, told


def check_update(learner: GradientLearner, weighted: bool, transition: Callable[..., tuple[Tensor, float]]) -> None:
    """An update is Adam's step on the weighted mean of losses, and the replay receives the errors.

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
    """``(1, 5)``, the one that was acted on or the next."""
    return (batch.next_observations if after else batch.observations)[i : i + 1]
