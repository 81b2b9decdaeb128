from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import make_run

from dqnspeed.checkpoint import Checkpoints, load
from dqnspeed.envs import EnvSpec
from dqnspeed.models import QNetwork
from dqnspeed.options import ConfigError

IMAGE = EnvSpec((1, 84, 84), np.dtype(np.uint8), 6, 4)


def count(network: torch.nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def test_nature_is_the_network_of_the_paper() -> None:
    network = QNetwork(make_run().model, (4, 84, 84), 6)
    # 32@8x8/4, 64@4x4/2, 64@3x3/1, 512 units, 6 actions: Mnih et al. 2015, Methods
    assert count(network) == (4 * 64 * 32 + 32) + (32 * 16 * 64 + 64) + (64 * 9 * 64 + 64) + (3136 * 512 + 512) + 3078
    assert network(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, 6)


def test_uint8_observations_are_scaled_not_changed() -> None:
    network = QNetwork(make_run().model, (4, 84, 84), 6)
    observations = torch.full((1, 4, 84, 84), 255, dtype=torch.uint8)
    assert network.preprocess(observations).max() == 1.0
    assert observations.min() == 255


@pytest.mark.parametrize("model", ["nature", "small"])
@pytest.mark.parametrize("options", [[], ["model.dueling=true"], ["model.layer_norm=true"], ["model.background=true"]])
def test_options_give_finite_values_and_gradients(model: str, options: list[str]) -> None:
    network = QNetwork(make_run(f"model={model}", *options).model, (2, 84, 84), 3)
    q = network(torch.randint(0, 256, (5, 2, 84, 84), dtype=torch.uint8))
    q.sum().backward()
    assert torch.isfinite(q).all()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in network.parameters())


def test_dueling_advantages_have_mean_zero() -> None:
    network = QNetwork(make_run("model=mlp", "model.dueling=true").model, (5,), 4)
    observations = torch.randn(3, 5)
    features = network.features(network.preprocess(observations))
    assert network.value is not None
    torch.testing.assert_close(network(observations).mean(1, keepdim=True), network.value(features))


def test_a_network_that_cannot_take_the_shape_says_so() -> None:
    with pytest.raises(ConfigError, match=r"do not fit observations of 4x20x20; use another model or wrappers.resize"):
        QNetwork(make_run().model, (4, 20, 20), 6)
    with pytest.raises(ConfigError, match="use model=mlp"):
        QNetwork(make_run().model, (4,), 6)


def test_checkpoints_keep_the_best_and_the_last_few(tmp_path) -> None:  # type: ignore[no-untyped-def]
    run = make_run("checkpoint.every_minutes=1", "checkpoint.keep=2", "model=small", "model.background=true")
    network = QNetwork(run.model, IMAGE.observation_shape, 6)
    network.preprocess.background += 7
    checkpoints = Checkpoints(tmp_path, run.checkpoint, run, IMAGE)
    for mean, games in [(-20.0, 5), (-19.0, 20), (-20.0, 30), (-18.0, 40), (-18.5, 50)]:
        checkpoints.at_mean(network, mean, games, step=games)
    for minute in range(5):
        checkpoints.at_time(network, 61.0 * minute, mean=0.0, step=minute)
        checkpoints.at_time(network, 61.0 * minute + 1, mean=0.0, step=minute)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["best.safetensors", "step_0000000003.safetensors", "step_0000000004.safetensors"]
    tensors, facts = load(tmp_path / "best.safetensors")
    assert (facts["agent_steps"], facts["return_mean"], facts["num_actions"]) == (40, -18.0, 6)
    again = QNetwork(run.model, IMAGE.observation_shape, 6)
    again.load_state_dict(tensors)
    assert again.preprocess.background.min() == 7


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one(tmp_path, caplog, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    run = make_run("model=small")
    network = QNetwork(run.model, IMAGE.observation_shape, 6)
    checkpoints = Checkpoints(tmp_path, run.checkpoint, run, IMAGE)
    checkpoints.save("best", network, 1, 0.0)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dqnspeed.checkpoint.save_file", full)
    checkpoints.save("best", network, 2, 0.0)
    assert "could not be saved" in caplog.text
    assert load(tmp_path / "best.safetensors")[1]["agent_steps"] == 1
