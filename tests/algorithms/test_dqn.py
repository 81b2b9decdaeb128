from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterable

import numpy as np
import pytest
import torch
from conftest import make_run, on_cpu
from torch import nn

from dqnspeed.algorithms import epsilon_at, make_learner
from dqnspeed.algorithms.dqn import DQNLearner
from dqnspeed.algorithms.learner import GradientLearner
from dqnspeed.algorithms.update_metrics import NotFiniteError
from dqnspeed.buffers import Batch
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec

CPU = torch.device("cpu")
VECTOR = EnvSpec((5,), np.dtype(np.float32), 3, 1, largest=1.0)
IMAGE = EnvSpec((1, 84, 84), np.dtype(np.uint8), 4, 2, largest=255.0)


def make_batch(spec: EnvSpec, size: int = 16, seed: int = 0) -> Batch:
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


def make_dqn(run: RunConfig, spec: EnvSpec, device: torch.device = CPU) -> DQNLearner:
    torch.manual_seed(0)
    learner = make_learner(run, spec, device)
    assert isinstance(learner, DQNLearner)
    return learner


def losses_of(learner: GradientLearner, batches: Iterable[Batch]) -> list[float]:
    """The loss of an update on each batch."""
    losses = []
    for batch in batches:
        learner.update(batch)
        losses.append(learner.stats()["train/loss"])
    return losses


def mlp(*overrides: str) -> RunConfig:
    return make_run("env=cartpole", "wrappers=none", "model=mlp", "model.hidden=[16]", *overrides)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("loss", ["mse", "huber"])
@pytest.mark.parametrize("dueling", [False, True])
def test_an_update_is_the_gradient_step_of_the_equation(double: bool, loss: str, dueling: bool) -> None:
    run = mlp(f"algo.double={double}", f"algo.loss={loss}", f"model.dueling={dueling}", "algo.max_grad_norm=0.5")
    dqn = make_dqn(run, VECTOR)
    dqn.target.network.load_state_dict(make_target(dqn))  # so that online and target disagree
    online, target = copy.deepcopy(dqn.network), copy.deepcopy(dqn.target.network)
    optimizer = torch.optim.Adam(online.parameters(), lr=run.optimizer.lr)
    batch = make_batch(VECTOR)

    loss_sum = torch.zeros(())
    for i in range(16):  # one sample at a time, from the equation
        s, s2 = batch.observations[i : i + 1], batch.next_observations[i : i + 1]
        with torch.no_grad():
            best = int((online if double else target)(s2).argmax())
            goal = float(batch.rewards[i]) + float(batch.discounts[i]) * target(s2)[0, best]
        error = online(s)[0, batch.actions[i]] - goal
        loss_sum = loss_sum + (error**2 if loss == "mse" else nn.functional.huber_loss(error, torch.zeros(())))
    optimizer.zero_grad()
    (loss_sum / 16).backward()
    nn.utils.clip_grad_norm_(online.parameters(), 0.5)
    optimizer.step()

    dqn.update(batch)
    for ours, expected in zip(dqn.network.parameters(), online.parameters(), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)
    assert dqn.stats()["train/loss"] == pytest.approx(loss_sum.item() / 16, rel=1e-4)


def make_target(dqn: DQNLearner) -> dict[str, torch.Tensor]:
    torch.manual_seed(7)
    return {key: value + 0.3 * torch.randn_like(value) for key, value in dqn.target.network.state_dict().items()}


def test_the_target_network_is_copied_every_target_update_every_updates() -> None:
    dqn = make_dqn(mlp("algo.target_update_every=3"), VECTOR)
    same = []
    for i in range(6):
        dqn.update(make_batch(VECTOR, seed=i))
        pairs = zip(dqn.network.parameters(), dqn.target.network.parameters(), strict=True)
        same.append(all(torch.equal(a, b) for a, b in pairs))
    assert same == [False, False, True, False, False, True]


def test_building_graphs_changes_no_number() -> None:
    """The rung without torch.no_grad() is exact: it only costs time."""
    results = []
    for execution in ("execution.no_grad=true", "execution.no_grad=false"):
        dqn = make_dqn(mlp("algo.double=true", execution), VECTOR)
        assert next(dqn.target.network.parameters()).requires_grad == execution.endswith("false")
        for i in range(5):
            dqn.update(make_batch(VECTOR, seed=i))
        results.append([p.detach().clone() for p in dqn.network.parameters()])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("execution", "spec"),
    [
        ("execution.channels_last=true", IMAGE),
        ("execution.precision=bf16", IMAGE),
        ("execution.compile=true", VECTOR),
        ("execution=compiled", IMAGE),
    ],
)
@pytest.mark.slow
def test_fast_executions_agree_with_the_plain_one(execution: str, spec: EnvSpec) -> None:
    losses = []
    for override in ("execution=eager", execution):
        run = mlp if spec is VECTOR else functools.partial(make_run, "model=small")
        dqn = make_dqn(run("optimizer.lr=1e-3", override), spec)
        if "channels_last" in override:
            images = [weight for weight in dqn.network.parameters() if weight.ndim == 4]
            assert images and all(weight.is_contiguous(memory_format=torch.channels_last) for weight in images)
        batch = make_batch(spec)
        losses.append(losses_of(dqn, [batch] * 4))
    assert losses[1] == pytest.approx(losses[0], rel=0.05 if "bf16" in execution else 1e-3)
    assert "bf16" not in execution or losses[1] != losses[0]
    assert losses[0][3] < losses[0][0]


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "radam", "rmsprop", "rmsprop_deepmind"])
def test_every_optimizer_lowers_the_loss(optimizer: str) -> None:
    dqn = make_dqn(mlp(f"optimizer={optimizer}", "optimizer.lr=3e-3"), VECTOR)
    losses = losses_of(dqn, [make_batch(VECTOR)] * 50)
    assert losses[49] < 0.9 * losses[0]


def test_a_loss_that_is_not_finite_is_named_with_its_update() -> None:
    dqn = make_dqn(mlp(), VECTOR)
    for i in range(5):
        batch = make_batch(VECTOR, seed=i)
        if i == 3:
            batch.rewards[0] = math.nan
        dqn.update(batch)
    with pytest.raises(NotFiniteError, match=r"update 4: .*Likely causes: .*optimizer.lr"):
        dqn.stats()


@pytest.mark.parametrize("layer_norm", [False, True])
def test_the_background_is_the_median_of_the_first_frames(layer_norm: bool) -> None:
    dqn = make_dqn(make_run("model=small", "model.background=true", f"model.layer_norm={layer_norm}"), IMAGE)
    frames = np.zeros((9, 1, 84, 84), np.uint8)
    frames[:5] = 80  # five of nine
    frames[:, 0, 0, 0] = np.arange(9) * 10
    dqn.on_training_start(frames)
    background = dqn.network.state_dict()["preprocess.background"]
    assert background.shape == (2, 84, 84)  # one for each frame of the stack
    assert background[0, 1, 1] == 80 and background[1, 0, 0] == 40
    assert torch.equal(background, dqn.target.network.state_dict()["preprocess.background"])
    still = torch.tensor(np.full((1, 2, 84, 84), 80, np.uint8))
    assert dqn.network.preprocess(still)[0, :, 1, 1].abs().max() == 0  # type: ignore[operator]


def test_the_learning_rate_falls_in_a_straight_line() -> None:
    run = mlp("optimizer.lr=1e-3", "optimizer.lr_final=2e-4", "optimizer.lr_decay_steps=32", "algo.steps_per_update=8")
    dqn = make_dqn(run, VECTOR)
    rates = []
    for i in range(6):
        dqn.update(make_batch(VECTOR, seed=i))
        rates.append(dqn.stats()["train/learning_rate"])
    assert rates == pytest.approx([1e-3, 8e-4, 6e-4, 4e-4, 2e-4, 2e-4])


def test_epsilon_falls_in_a_straight_line() -> None:
    run = make_run("exploration.decay_start=100", "exploration.decay_steps=200", "exploration.final=0.1")
    assert [epsilon_at(step, run) for step in (0, 100, 200, 300, 900)] == pytest.approx([1, 1, 0.55, 0.1, 0.1])


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("execution.precision=bf16",), ("algo.max_grad_norm=0.01",)], ids=str)
def test_gradients_that_the_compiler_joins_to_the_loss_change_the_weights_as_those_of_autograd(
    options: tuple[str, ...],
) -> None:
    from torch._dynamo.utils import counters

    if not hasattr(torch._dynamo.config, "trace_autograd_ops"):
        pytest.skip("this torch makes no such graph")
    shared = (
        "model=small", "model.dueling=true", "model.layer_norm=true", "optimizer.lr=1e-3", "stop.max_steps=80",
        "execution.channels_last=true", "execution.no_grad=false",
    )  # fmt: skip
    plain, joined = (
        make_dqn(make_run(*options, *shared, f"execution.compile={compiles}"), IMAGE) for compiles in (False, True)
    )
    begin = copy.deepcopy(plain.network.state_dict())
    counters.clear()
    for learner in (plain, joined):
        assert (learner.optimization.loss_and_gradients is not None) == (learner is joined)
        learner.network.features[0].bias.requires_grad_(False)  # a model may have such
        for i in range(6):
            learner.update(make_batch(IMAGE, seed=i))
    assert not counters["graph_break"]
    for name, expected in plain.network.state_dict().items():
        moved, apart = ((expected - other[name]).abs().mean() for other in (begin, joined.network.state_dict()))
        assert apart <= (0.1 if "bf16" in str(options) else 0.01) * moved


@pytest.mark.cuda
def test_cuda_learns_the_same_from_the_same_batches() -> None:
    losses = []
    for device in ("cpu", "cuda"):
        dqn = make_dqn(make_run("model=small", "execution.pin_memory=true"), IMAGE, torch.device(device))
        losses.append(losses_of(dqn, [make_batch(IMAGE, seed=i) for i in range(8)]))
    assert losses[1] == pytest.approx(losses[0], rel=1e-2)


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("execution", "rel"),
    [
        ("execution.pin_memory=false", 1e-2),
        ("execution.channels_last=true", 2e-2),
        ("execution.precision=bf16", 0.05),
        ("execution=compiled", 2e-2),
    ],
)
@pytest.mark.filterwarnings("ignore")  # the compiler has hints on precision
def test_cuda_executions_agree_with_the_plain_one(execution: str, rel: float) -> None:
    losses = []
    for override in ("execution=eager", execution):
        dqn = make_dqn(make_run("model=small", "optimizer.lr=1e-3", override), IMAGE, torch.device("cuda"))
        batches = [make_batch(IMAGE, seed=i) for i in range(4)]  # a copy that comes too late would show
        losses.append(losses_of(dqn, batches))
    assert losses[1] == pytest.approx(losses[0], rel=rel)
