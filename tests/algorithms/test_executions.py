"""Learners with a target network learn the same, however they compute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_run
from one_update import CPU, losses_of, make_batch

from dqnspeed.algorithms import make_learner
from dqnspeed.algorithms.learner import GradientLearner
from dqnspeed.buffers import Batch
from dqnspeed.envs import EnvSpec

IMAGE = EnvSpec((1, 20, 20), np.dtype(np.uint8), 4, 2, largest=255.0)
KINDS = {
    "dqn": ["algo.double=true", "model.dueling=true"],
    "munchausen": ["algo=munchausen", "model.dueling=true"],
    "iqn": ["algo=iqn", "algo.double=true", "model.dueling=true"],
    "c51": ["algo=c51", "algo.double=true", "model.dueling=true"],
    "rainbow": ["algo=rainbow"],
    "sac_discrete": ["algo=sac_discrete"],
}


def make(kind: str, device: torch.device = CPU, noise: bool = False, **execution: Any) -> GradientLearner:
    torch.manual_seed(0)
    run = make_run("model=small", "model.hidden=[32]", "optimizer.lr=1e-3", *KINDS[kind])
    learner = make_learner(replace(run, execution=replace(run.execution, **execution)), IMAGE, device)
    assert isinstance(learner, GradientLearner) and learner.target is not None
    for network in (learner.network, learner.target.network):
        network.train(noise)
    return learner


def batches(count: int) -> Iterator[Batch]:
    for seed in range(count):
        batch = make_batch(IMAGE, size=8, seed=seed)
        batch.weights = np.linspace(0.1, 1, 8, dtype=np.float32)
        yield batch


def losses(learner: GradientLearner, count: int = 3) -> list[float]:
    torch.manual_seed(1)
    return losses_of(learner, batches(count))


@pytest.mark.parametrize("kind", KINDS)
def test_building_graphs_changes_no_number(kind: str) -> None:
    plain, graphs = (make(kind, noise=True, no_grad=no_grad) for no_grad in (True, False))
    assert losses(plain) == losses(graphs)
    for a, b in zip(plain.network.parameters(), graphs.network.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_fast_executions_agree_with_the_plain_one(kind: str) -> None:
    expected = losses(make(kind))
    assert losses(make(kind, channels_last=True)) == pytest.approx(expected, rel=1e-3)
    rounded = losses(make(kind, precision="bf16"))
    assert rounded == pytest.approx(expected, rel=0.05) and rounded != expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["munchausen", "iqn", "rainbow", "sac_discrete"])
def test_a_loss_is_one_graph_to_the_compiler(kind: str) -> None:
    learner = make(kind, noise=kind == "rainbow")
    compiled = torch.compile(learner.loss, backend="aot_eager", fullgraph=True)
    result = compiled(**{name: torch.as_tensor(array) for name, array in next(batches(1)).arrays().items()})
    result.loss.backward()
    assert result.loss.isfinite()


@pytest.mark.cuda
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "iqn"])  # which draws its fractions on the device
def test_cuda_learns_the_same_from_the_same_batches(kind: str) -> None:
    expected = losses(make(kind), 6)
    assert losses(make(kind, torch.device("cuda")), 6) == pytest.approx(expected, rel=2e-2)


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
def test_cuda_computes_an_update_and_the_errors_that_a_replay_asks_for(kind: str, precision: str) -> None:
    learner = make(kind, torch.device("cuda"), noise=True, precision=precision)
    batch, told = next(batches(1)), list[torch.Tensor]()
    batch.update_priorities = told.append
    learner.update(batch)
    assert np.isfinite(list(learner.stats().values())).all()
    assert told[0].shape == (8,) and told[0].isfinite().all()
