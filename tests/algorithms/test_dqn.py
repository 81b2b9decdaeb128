"""Updates of DQN against its equation, and what every learner does around an update."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from conftest import make_run
from one_update import CPU, VECTOR, check_update, learner_of, losses_of, make_batch, observation
from torch import nn

from dqnspeed.algorithms import make_learner
from dqnspeed.algorithms.dqn import DQNLearner
from dqnspeed.buffers import Batch
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec

IMAGE = EnvSpec((1, 84, 84), np.dtype(np.uint8), 4, 2, largest=255.0)


def make_dqn(run: RunConfig, spec: EnvSpec, device: torch.device = CPU) -> DQNLearner:
    torch.manual_seed(0)
    learner = make_learner(run, spec, device)
    assert isinstance(learner, DQNLearner)
    return learner


def mlp(*overrides: str) -> RunConfig:
    return make_run("env=cartpole", "wrappers=none", "model=mlp", "model.hidden=[16]", *overrides)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(("loss", "dueling"), [("mse", False), ("huber", True)])
def test_an_update_is_the_gradient_step_of_the_equation(double: bool, loss: str, dueling: bool, weighted: bool) -> None:
    learner = learner_of(f"algo.double={double}", f"algo.loss={loss}", f"model.dueling={dueling}")

    def transition(i: int, batch: Batch, online: nn.Module, target: nn.Module) -> tuple[torch.Tensor, float]:
        after = observation(batch, i, after=True)
        with torch.no_grad():
            best = int((online if double else target)(after).argmax())
            goal = float(batch.rewards[i]) + float(batch.discounts[i]) * target(after)[0, best]
        error = online(observation(batch, i))[0, batch.actions[i]] - goal
        return error**2 if loss == "mse" else nn.functional.huber_loss(error, torch.zeros(())), abs(error.item())

    check_update(learner, weighted, transition)


def test_the_target_network_is_copied_every_target_update_every_updates() -> None:
    dqn = make_dqn(mlp("algo.target_update_every=3"), VECTOR)
    same = []
    for i in range(6):
        dqn.update(make_batch(VECTOR, seed=i))
        pairs = zip(dqn.network.parameters(), dqn.target.network.parameters(), strict=True)
        same.append(all(torch.equal(a, b) for a, b in pairs))
    assert same == [False, False, True, False, False, True]


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "radam", "rmsprop", "rmsprop_deepmind"])
def test_every_optimizer_lowers_the_loss(optimizer: str) -> None:
    dqn = make_dqn(mlp(f"optimizer={optimizer}", "optimizer.lr=3e-3"), VECTOR)
    losses = losses_of(dqn, [make_batch(VECTOR)] * 50)
    assert losses[49] < 0.9 * losses[0]


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


@pytest.mark.integration
@pytest.mark.parametrize("option", ["execution.precision=fp32", "execution.precision=bf16", "algo.max_grad_norm=0.01"])
def test_compiled_updates_change_the_weights_as_those_of_autograd(option: str) -> None:
    from torch._dynamo.utils import counters

    if not hasattr(torch._dynamo.config, "trace_autograd_ops"):
        pytest.skip("this torch does not compile the gradients together with the loss")
    shared = (
        "model=small", "model.dueling=true", "model.layer_norm=true", "optimizer.lr=1e-3", "stop.max_steps=80",
        "execution.channels_last=true", "execution.no_grad=false",
    )  # fmt: skip
    plain, joined = (
        make_dqn(make_run(option, *shared, f"execution.compile={compiles}"), IMAGE) for compiles in (False, True)
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
        assert apart <= (0.1 if "bf16" in option else 0.01) * moved


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
