"""Updates of on-policy learners and of the table against their equations, one sample at a time, and their policies."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import as_arrays, make_run, on_cpu, train_in
from one_update import CPU, SIZE, VECTOR, make_batch
from torch import Tensor, nn

from dqnspeed.algorithms import make_buffer, make_learner, make_policy
from dqnspeed.algorithms.learner import GradientLearner
from dqnspeed.algorithms.q_learning import TableLearner
from dqnspeed.buffers import Batch, RolloutBatch
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec

COUNT = 13  # transitions of a batch; its other rows fill it up


def mlp(*overrides: str) -> RunConfig:
    return make_run("env=cartpole", "model.hidden=[16]", *overrides)


def pieces() -> Batch:
    batch = make_batch(VECTOR)
    batch.versions = torch.zeros(SIZE, dtype=torch.int64)
    return batch


def rollout() -> RolloutBatch:
    rng = np.random.default_rng(3)
    floats = [rng.normal(size=SIZE).astype(np.float32) for _ in range(2)]
    batch: RolloutBatch = on_cpu(
        RolloutBatch(
            observations=rng.normal(size=(SIZE, 5)).astype(np.float32),
            actions=rng.integers(3, size=SIZE),
            log_probs=-rng.uniform(0.8, 1.5, SIZE).astype(np.float32),  # ratios on both sides of the clip
            values=0.3 * floats[0],
            returns=floats[1],
            advantages=floats[1] - 0.3 * floats[0],
            lags=np.full(SIZE, 3, np.float32),
            weights=(np.arange(SIZE) < COUNT).astype(np.float32) / COUNT,
        )
    )
    return batch


def step(run: RunConfig, network: nn.Module, loss: Tensor) -> list[Tensor]:
    """The parameters of ``network`` after the optimizer step of the configuration on ``loss``."""
    kind = {"adam": torch.optim.Adam, "radam": torch.optim.RAdam}[run.optimizer.name]
    optimizer = kind(network.parameters(), lr=run.optimizer.lr, eps=run.optimizer.eps)
    optimizer.zero_grad()
    loss.backward()
    assert run.algo.max_grad_norm is not None
    nn.utils.clip_grad_norm_(network.parameters(), run.algo.max_grad_norm)
    optimizer.step()
    return list(network.parameters())


def assert_same(learner: GradientLearner, expected: list[Tensor]) -> None:
    for ours, theirs in zip(learner.network.parameters(), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def seeded(run: RunConfig) -> GradientLearner:
    torch.manual_seed(0)
    learner = make_learner(run, VECTOR, CPU)
    assert isinstance(learner, GradientLearner)
    with torch.no_grad():  # the policy begins almost uniform, where many mistakes would not show
        for parameter in learner.network.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return learner


@pytest.mark.parametrize("algo", ["a2c", "a3c"])
def test_an_actor_critic_update_is_the_gradient_step_of_its_equation(algo: str) -> None:
    run = mlp(f"algo={algo}", "algo.vf_coef=0.7", "algo.ent_coef=0.05")
    learner, batch = seeded(run), pieces() if algo == "a3c" else rollout()
    count = SIZE if algo == "a3c" else COUNT
    network = copy.deepcopy(learner.network)
    policy_loss, value_loss, entropy = torch.zeros(()), torch.zeros(()), torch.zeros(())
    for i in range(count):
        logits, value = network.policy_and_value(batch.observations[i : i + 1])
        if isinstance(batch, RolloutBatch):
            target = float(batch.returns[i])
        else:
            with torch.no_grad():
                next_value = float(network.policy_and_value(batch.next_observations[i : i + 1])[1])
            target = float(batch.rewards[i]) + float(batch.discounts[i]) * next_value
        policy = torch.distributions.Categorical(logits=logits[0])
        advantage = target - value.item()
        policy_loss = policy_loss - advantage * policy.log_prob(batch.actions[i]) / count
        value_loss = value_loss + (target - value[0]) ** 2 / count
        entropy = entropy + policy.entropy() / count
    learner.update(batch)
    assert_same(learner, step(run, network, policy_loss + 0.7 * value_loss - 0.05 * entropy))
    stats = learner.stats()
    expected = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
    assert {name: stats[f"train/{name}"] for name in expected} == pytest.approx(
        {name: value.item() for name, value in expected.items()}, rel=1e-4
    )
    assert stats["train/policy_lag"] == pytest.approx(0 if algo == "a3c" else 3)


def test_an_entropy_bonus_falls_with_the_learning_rate_over_agent_steps() -> None:
    """Sixteen agent steps are four updates of four."""
    learner = seeded(
        mlp("algo=a3c", "parallelism.num_actors=1", "algo.batch_size=4", "algo.ent_coef=0.04", "algo.ent_coef_final=0",
            "optimizer.lr=1e-3", "optimizer.lr_final=6e-4", "optimizer.lr_decay_steps=16")
    )  # fmt: skip
    weights, rates = [], []
    for _ in range(6):
        weights.append(float(learner.loss_inputs(pieces())["ent_coef"]))
        learner.update(pieces())
        shown = learner.stats()
        rates.append(shown["train/learning_rate"])
        assert shown["train/ent_coef"] == pytest.approx(float(learner.loss_inputs(pieces())["ent_coef"]))
    assert weights == pytest.approx([0.04, 0.03, 0.02, 0.01, 0, 0])
    assert rates == pytest.approx([1e-3, 9e-4, 8e-4, 7e-4, 6e-4, 6e-4])


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("clip_vloss", [False, True])
def test_a_ppo_update_is_the_gradient_step_of_its_equation(normalize: bool, clip_vloss: bool) -> None:
    run = mlp(
        "algo=ppo",
        "algo.clip_range=0.2",
        "algo.vf_coef=0.7",
        f"algo.normalize_advantage={normalize}",
        f"algo.clip_vloss={clip_vloss}",
    )
    learner, batch = seeded(run), rollout()
    network = copy.deepcopy(learner.network)
    advantages = [float(batch.returns[i]) - float(batch.values[i]) for i in range(COUNT)]
    if normalize:
        mean, std = float(np.mean(advantages)), float(np.std(advantages, ddof=1))
        advantages = [(a - mean) / (std + 1e-8) for a in advantages]
    total, kl, clipped, errors = torch.zeros(()), 0.0, 0, 0.0
    for i, advantage in enumerate(advantages):
        logits, value = network.policy_and_value(batch.observations[i : i + 1])
        policy, old = torch.distributions.Categorical(logits=logits[0]), float(batch.values[i])
        log_ratio = policy.log_prob(batch.actions[i]) - float(batch.log_probs[i])
        ratio = torch.exp(log_ratio)
        gain = torch.minimum(ratio * advantage, torch.clamp(ratio, 0.8, 1.2) * advantage)
        error = (value[0] - float(batch.returns[i])) ** 2
        if clip_vloss:
            near = old + torch.clamp(value[0] - old, -0.2, 0.2)
            error = torch.maximum(error, (near - float(batch.returns[i])) ** 2)
        total = total + (-gain + 0.7 * error / 2 - 0.01 * policy.entropy()) / COUNT
        errors += error.item() / COUNT
        kl += (ratio - 1 - log_ratio).item() / COUNT
        clipped += int(abs(ratio.item() - 1) > 0.2)
    learner.update(batch)
    assert_same(learner, step(run, network, total))
    stats = learner.stats()
    assert stats["train/value_loss"] == pytest.approx(errors, rel=1e-4)
    assert stats["train/approx_kl"] == pytest.approx(kl, rel=1e-3)
    assert stats["train/clip_fraction"] == pytest.approx(clipped / COUNT) and 0 < clipped < COUNT
    assert stats["train/policy_lag"] == pytest.approx(3)


def test_a_divergence_of_more_than_one_and_a_half_targets_ends_learning_from_a_rollout() -> None:
    """The batch that shows it is not learnt from either, as in Stable-Baselines3."""
    learner = seeded(mlp("algo=ppo", "algo.target_kl=0.01"))
    far = as_acted(learner, rollout())
    state, done = copy.deepcopy(learner.network.state_dict()), 0
    for rollout_number, log_ratio, updates in (
        (1, 0.0, 1),
        (1, 0.16, 2),  # exp(0.16) - 1 - 0.16 = 0.0135
        (1, 0.18, 2),  # 0.0172
        (1, 0.0, 2),
        (2, 0.0, 3),
    ):
        learner.network.load_state_dict(state)
        batch = dataclasses.replace(far, log_probs=far.log_probs - log_ratio, rollout=rollout_number)
        learner.update(batch)
        assert learner.updates == updates
        changed = any((new != state[name]).any() for name, new in learner.network.named_parameters())
        assert changed == (updates > done)
        done = updates


def test_updates_that_are_left_out_count_in_the_schedules() -> None:
    line = ["algo.target_kl=0.01", "optimizer.lr=0.01", "optimizer.lr_final=0.001", "optimizer.lr_decay_steps=1000"]
    learner = seeded(mlp("algo=ppo", *line))
    learner.update(as_acted(learner, rollout()))
    far = as_acted(learner, rollout())
    for _ in range(2):
        learner.update(dataclasses.replace(far, log_probs=far.log_probs - 5, rollout=2))
    assert learner.updates == 1
    rate = 0.01 + 3 / learner.decay_updates * (0.001 - 0.01)
    assert learner.learning_rate() == pytest.approx(rate) and 0.001 < rate < 0.01
    restored = seeded(mlp("algo=ppo", *line))
    restored.load_state_dict(as_arrays(learner.state_dict()))
    assert restored.learning_rate() == pytest.approx(rate)
    assert restored.stats()["train/learning_rate"] == pytest.approx(rate)


def as_acted(learner: Any, batch: RolloutBatch) -> RolloutBatch:
    """``batch`` with the log-probabilities of the learner's network."""
    with torch.no_grad():
        logits, _ = learner.network.policy_and_value(batch.observations)
    log_probs = torch.log_softmax(logits, dim=1).gather(1, batch.actions[:, None])[:, 0]
    return dataclasses.replace(batch, log_probs=log_probs)


@pytest.mark.integration
@pytest.mark.parametrize("updates", [32, 160])
def test_the_divergence_ends_near_its_target_however_many_updates_a_rollout_has(updates: int, tmp_path: Path) -> None:
    line = ["algo=ppo", "model.hidden=[16]", "algo.num_steps=32", "algo.batch_size=32", f"algo.epochs={updates // 8}"]
    line += ["algo.adaptive_kl_target=0.01", "algo.clip_range=0.2", "optimizer.lr=3e-3", "stop.max_steps=24000"]
    train_in(tmp_path, make_run(*CARTPOLE, *line, "stop.reward_bound=null", "tracking.report_every_s=0.001"))
    reports = [json.loads(text) for text in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    found = [report["train/approx_kl"] for report in reports if "train/approx_kl" in report]  # of a rollout each
    assert len(found) >= 40
    assert 0.01 / 1.5 < np.mean(found[len(found) // 2 :]) < 0.01 * 1.5


@pytest.mark.parametrize("loss", ["mse", "huber"])
def test_a_pqn_update_is_the_gradient_step_of_its_equation(loss: str) -> None:
    run = mlp("algo=pqn", "num_envs=16", f"algo.loss={loss}")
    learner, batch = seeded(run), rollout()
    network, total = copy.deepcopy(learner.network), torch.zeros(())
    for i in range(COUNT):
        error = network(batch.observations[i : i + 1])[0, batch.actions[i]] - float(batch.returns[i])
        total = total + (error**2 if loss == "mse" else nn.functional.huber_loss(error, torch.zeros(()))) / COUNT
    learner.update(batch)
    assert_same(learner, step(run, network, total))
    assert any(isinstance(module, nn.LayerNorm) for module in learner.network.modules())


def test_a_table_moves_by_its_equation() -> None:
    spec = EnvSpec((5,), np.dtype(np.float32), 3, 1, largest=1.0, num_states=5)
    learner = make_learner(make_run("algo=q_learning", "env=frozen_lake"), spec, CPU)
    assert isinstance(learner, TableLearner)
    rng, table = np.random.default_rng(0), np.zeros((5, 3))
    one_hot = np.eye(5, dtype=np.float32)
    for _ in range(200):
        s, s2, a, r, terminated = *rng.integers(5, size=2), rng.integers(3), rng.normal(), rng.random() < 0.3
        discount = np.array([0 if terminated else 0.9], np.float32)
        learner.update(on_cpu(Batch(one_hot[[s]], np.array([a]), np.array([r], np.float32), one_hot[[s2]], discount)))
        table[s, a] = 0.8 * table[s, a] + 0.2 * (r + (0 if terminated else 0.9 * table[s2].max()))
    np.testing.assert_allclose(learner.network.state_dict()["values"], table, atol=1e-5)


@pytest.mark.parametrize("algo", ["ppo", "sac_discrete"])
def test_actions_are_drawn_from_the_policy_and_their_probabilities_returned(algo: str) -> None:
    run = mlp(f"algo={algo}")
    learner = seeded(run)
    policy = make_policy(run, VECTOR, learner.network, CPU, np.random.default_rng(0))
    observations = np.repeat(np.random.default_rng(1).normal(size=(1, 5)), 20_000, axis=0).astype(np.float32)
    actions, known = policy(observations, epsilon=math.nan)
    with torch.no_grad():
        expected = torch.softmax(learner.network(torch.tensor(observations[:1]))[0], 0).numpy()
        value = learner.network.policy_and_value(torch.tensor(observations[:1]))[1] if algo == "ppo" else math.nan  # type: ignore[operator]
    np.testing.assert_allclose(np.bincount(actions, minlength=3) / 20_000, expected, atol=0.015)
    np.testing.assert_allclose(known["log_probs"], np.log(expected)[actions], rtol=1e-4)
    np.testing.assert_allclose(known["values"], float(value), rtol=1e-4)  # SAC asks no critic


@pytest.mark.cuda
@pytest.mark.parametrize("algo", ["a2c", "a3c", "ppo", "pqn"])
def test_cuda_learns_and_acts_the_same(algo: str) -> None:
    run = mlp(f"algo={algo}")
    weights, known = [], []
    for device in (CPU, torch.device("cuda")):
        torch.manual_seed(0)
        learner = make_learner(run, VECTOR, device)
        for _ in range(4):
            learner.update(pieces() if algo == "a3c" else rollout())
        weights += [[p.detach().cpu() for p in learner.network.parameters()]]
        policy = make_policy(run, VECTOR, learner.network, device, np.random.default_rng(0))
        known.append(policy(rollout().observations, epsilon=0.0)[1])
    for ours, theirs in zip(*weights, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(known[0]["values"], known[1]["values"], rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(known[0]["versions"], known[1]["versions"])


@pytest.mark.parametrize("algo", ["dqn", "iqn", "rainbow", "sac_discrete", "a2c", "ppo", "pqn"])
def test_a_warm_up_leaves_no_trace_in_the_learner(algo: str) -> None:
    learner = make_learner(mlp(f"algo={algo}"), VECTOR, CPU)
    batch = rollout() if algo in ("a2c", "ppo", "pqn") else pieces()
    learner.update(batch)
    before = copy.deepcopy(learner.state_dict())
    learner.warm_up(batch)
    assert repr(learner.state_dict()) == repr(before)
    assert isinstance(learner, GradientLearner) and int(learner.network.version) == 1  # type: ignore[arg-type]
    assert all(p.grad is None for p in learner.network.parameters())


@pytest.mark.integration
def test_a_warm_up_compiles_what_the_updates_then_use() -> None:
    from torch._dynamo.utils import counters

    run = mlp("algo=ppo", "execution.compile=true")
    learner = make_learner(run, VECTOR, CPU)
    counters.clear()
    learner.warm_up(make_buffer(run, VECTOR).blank(SIZE))
    graphs = counters["stats"]["unique_graphs"]
    assert graphs > 0
    learner.update(rollout())
    learner.update(rollout())
    assert counters["stats"]["unique_graphs"] == graphs


@pytest.mark.cuda
@pytest.mark.parametrize("algo", ["dqn", "ppo", "pqn", "a2c", "a3c", "sac_discrete"])
def test_acting_waits_for_the_device_once(algo: str) -> None:
    learner = make_learner(mlp(f"algo={algo}"), VECTOR, torch.device("cuda"))
    policy = make_policy(mlp(f"algo={algo}"), VECTOR, learner.network, learner.device, np.random.default_rng(0))
    policy.warm_up(rollout().observations)
    try:
        torch.cuda.set_sync_debug_mode("warn")
        with pytest.warns(UserWarning, match="synchroniz") as waits:
            policy(rollout().observations, epsilon=0.0)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(waits) == 1


CARTPOLE = ["env=cartpole", "stop.max_minutes=5", "execution.threads=1", "tracking=local", "tracking.progress=off"]


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "parallelism"), [("a2c", "serial"), ("ppo", "overlap"), ("pqn", "overlap")])
def test_a_rollout_is_played_with_one_version_of_the_weights(algo: str, parallelism: str, tmp_path: Path) -> None:
    batch = "algo.batch_size=32" if algo == "a2c" else "algo.batch_size=10"
    run = make_run(*CARTPOLE, f"algo={algo}", f"parallelism={parallelism}", "model.hidden=[8]", "num_envs=4", batch,
                   "algo.num_steps=8", "stop.max_steps=500", "tracking.report_every_s=0.001")  # fmt: skip
    assert train_in(tmp_path, run)["updates"] >= 12
    reports = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    lags = [report["train/policy_lag"] for report in reports if "train/policy_lag" in report]
    assert len(lags) >= 12 and not any(lags)
    assert any("train/explained_variance" in report for report in reports) == (algo != "pqn")
    assert not any("perf/policy_lag" in report for report in reports)


@pytest.mark.slow
def test_the_lake_is_crossed_by_table(tmp_path: Path) -> None:
    """The lake that is not slippery, whose shortest path is found within some thousand random steps."""
    run = make_run(
        "algo=q_learning", "env=frozen_lake", "env.kwargs={is_slippery: false}", "eval.every_steps=100",
        "tracking=local", "tracking.progress=off", "stop.max_steps=20000",
    )  # fmt: skip
    summary = train_in(tmp_path, run)
    assert summary["solved"] and summary["eval_return_mean"] == 1
