"""Whatever learns from a replay learns to catch a ball that it sees in pixels."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import make_run, train_in

KINDS = {
    "munchausen": ["algo=munchausen", "algo.loss=mse"],
    "iqn": ["algo=iqn"],
    "c51": ["algo=c51"],
    "rainbow": ["algo=rainbow"],
    "sac_discrete": ["algo=sac_discrete", "algo.target_entropy=0.3", "algo.temperature=0.1"],
    "prioritized": ["replay=prioritized"],
    "noisy": ["exploration=noisy"],
    "impala": ["model=impala", "model.channels=[8]"],
}
QUICK = ["num_envs=4", "algo.n_step=3", "algo.batch_size=32", "algo.steps_per_update=4", "algo.max_grad_norm=10",
         "optimizer.lr=1e-3", "optimizer.eps=1e-4", "execution.threads=1", "tracking=local",
         "tracking.progress=off", "checkpoint=none"]  # fmt: skip
CATCH = ["env.id=toy_envs:Catch-v0", "wrappers=none", "model=board", "model.hidden=[32]", "algo.learning_starts=200",
         "algo.target_update_every=50", "replay.buffer_size=5000", "exploration.decay_steps=1000",
         "stop.reward_bound=0.5",
         "stop.window=50", "stop.max_steps=40000"]  # fmt: skip


@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS)
def test_the_ball_is_caught(kind: str, tmp_path: Path) -> None:
    """Three times of four, where random moves catch it once in five; three seeds need 1,300 to 5,000 steps."""
    run = make_run(*QUICK, *CATCH, *KINDS[kind])
    summary = train_in(tmp_path, run)
    assert summary["solved"], summary["return_mean_100"]
