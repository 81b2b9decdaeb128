"""Every kind of observation an environment may have, and the mistakes that are named before a run begins."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import gymnasium
import numpy as np
import pytest
import toy_envs
from conftest import make_run, make_toy, mostly_integration, train_in
from gymnasium import spaces

from dqnspeed.cli.preflight import check_run
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import make_env, make_vector_env
from dqnspeed.envs.games import atari_game
from dqnspeed.envs.observations import has_channels_first


def run_of(kind: str, *overrides: str, wrong: str = "") -> RunConfig:
    return make_run(
        "env.id=toy_envs:Anything-v0", f"env.kwargs={{kind: {kind}, wrong: '{wrong}'}}", "env.reward_bound=null",
        "wrappers=none", "model=mlp", "model.hidden=[8]", *overrides,
    )  # fmt: skip


SHAPES: dict[str, tuple[tuple[int, ...], Any, float]] = {
    "hw": ((1, 20, 24), np.uint8, 255),
    "hwc": ((3, 20, 24), np.uint8, 255),
    "hw1": ((1, 20, 24), np.uint8, 255),
    "chw": ((3, 20, 24), np.uint8, 255),
    "blank": ((1, 20, 24), np.uint8, 1),
    "float": ((3, 20, 24), np.float32, 1),
    "many": ((7, 10, 10), np.uint8, 1),
    "board": ((1, 15, 15), np.uint8, 1),
    "int_board": ((1, 15, 15), np.float32, 1),
    "bits": ((6,), np.uint8, 1),
    "vector": ((4,), np.float32, 1),
    "number": ((1,), np.float32, 1),
    "discrete": ((9,), np.uint8, 1),
    "shifted": ((9,), np.uint8, 1),
    "several": ((5,), np.uint8, 1),
    "tuple": ((7,), np.uint8, 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHAPES)
def test_observations_reach_the_network_with_their_channels_first_and_nothing_lost(kind: str) -> None:
    run = run_of(kind)
    spec = check_run(run)
    shape, dtype, largest = SHAPES[kind]
    assert (spec.frame_shape, spec.frame_dtype, spec.largest) == (shape, dtype, largest)
    env = make_env(run.env, run.wrappers)
    frame, _ = env.reset(seed=3)
    raw = gymnasium.make("Anything-v0", disable_env_checker=True, kind=kind).reset(seed=3)[0]
    assert frame.shape == shape and frame.dtype == dtype
    expected = {
        "hwc": lambda: raw.transpose(2, 0, 1),
        "hw1": lambda: raw.transpose(2, 0, 1),
        "float": lambda: raw.transpose(2, 0, 1),
        "many": lambda: raw.transpose(2, 0, 1),
        "discrete": lambda: np.eye(9)[raw],
        "shifted": lambda: np.eye(9)[raw - 3],
        "several": lambda: np.concatenate([np.eye(2)[raw[0]], np.eye(3)[raw[1]]]),
        "tuple": lambda: np.concatenate([np.eye(2)[raw[0]], np.eye(5)[raw[1]]]),
    }.get(kind, lambda: raw)()
    np.testing.assert_allclose(frame, np.reshape(expected, shape), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_actions_have_the_dtype_of_their_space(dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy_envs.Anything, "action_space", spaces.Discrete(3, start=5, dtype=dtype))
    run = run_of("vector", "num_envs=2")
    assert check_run(run).num_actions == 3
    with contextlib.closing(make_vector_env(run)) as env:
        env.reset([0, 1])
        for action in range(3):
            env.send(np.full(2, action))
            env.recv()


def test_a_dict_gives_the_entry_that_is_named() -> None:
    assert check_run(run_of("dict", "env.observation_key=image")).frame_shape == (3, 20, 24)


@pytest.mark.slow
def test_the_stages_work_on_images_of_any_layout() -> None:
    for kind in ("hw", "hwc", "chw"):
        spec = check_run(run_of(kind, "wrappers.resize=16", "wrappers.grayscale=true", "wrappers.frame_skip=2",
                                "wrappers.max_pool=true", "wrappers.stack=3"))  # fmt: skip
        assert (spec.frame_shape, spec.observation_shape) == ((1, 16, 16), (3, 16, 16))
    assert check_run(run_of("float", "wrappers.resize=16")).frame_shape == (3, 16, 16)
    assert check_run(run_of("hwc", "env.channels=first")).frame_shape == (20, 24, 3)


BAD = {
    "dict": "env.observation_key: the observations of toy_envs:Anything-v0 are a Dict of image, mission; name one of",
    "dict env.observation_key=picture": "are a Dict of image, mission; and not picture.",
    "hw env.observation_key=image": "env.observation_key=image: the observations of toy_envs:Anything-v0 are no Dict",
    "text": "its observations are Text(",
    "cube": r"its observations have the shape (2, 4, 4, 4); vectors, (H, W), (H, W, C) and (C, H, W) can be learnt",
    "board model=nature": "model=nature: its convolutions do not fit observations of 1x15x15; use model=board (for",
    "vector model=nature": "model=nature: takes images, and observations here are 4; use model=mlp.",
    "vector wrappers.resize=84": "wrappers.resize=84: resizes images, and observations here are (4,).",
    "float wrappers.resize=84 wrappers.resizer=pillow": "wrappers.resizer=pillow: resizes uint8 images only",
    "continuous": "its actions are Box(",
    "empty": "its observations have the shape (0,), which holds no values.",
    "million": "its observations are Discrete(2000000), and one-hot vectors of 2,000,000 values are too long to learn",
    "hw|divided": "its observation is float64 after a reset, and its space says uint8 (was it divided?).",
    "vector|nan": "its observation holds nan after a reset.",
    "hw|turned": "its observation has the shape (24, 20) after a reset, and its space says (20, 24).",
    "discrete|outside": "its observation 99 after a reset is not in its space Discrete(9).",
    "hw|no info": "broke after a few steps (ValueError: too many values to unpack",
    "hw|four values": "broke after a few steps (ValueError: not enough values to unpack",
    "hw|nan reward": "its reward is nan after 1 steps, and must be a finite number.",
    "hw|text reward": "its reward is '1.0' after 1 steps, and must be a finite number.",
    "hw|rewards": "its reward is array([1.]) after 1 steps, and must be a finite number.",
    "hw|raises": "broke after a few steps (RuntimeError: the toy broke).",
}


@pytest.mark.slow
@pytest.mark.parametrize("line", BAD)
def test_what_cannot_be_learnt_from_is_named_with_the_way_out(line: str) -> None:
    kind, _, wrong = line.partition("|")
    with pytest.raises(ConfigError) as raised:
        check_run(run_of(*kind.split(), wrong=wrong))
    assert BAD[line] in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "wrong", "doubt"),
    [
        (
            "hw",
            "divided and cast",
            "reach 1 where its space allows 255; if they were divided already correct the space",
        ),
        ("vector", "beyond", "beyond what its space allows"),
    ],
)
def test_doubts_are_printed_and_stop_nothing(
    kind: str, wrong: str, doubt: str, caplog: pytest.LogCaptureFixture
) -> None:
    check_run(run_of(kind, wrong=wrong))
    assert [r.levelno for r in caplog.records] == [logging.WARNING] and doubt in caplog.text


@pytest.mark.slow
def test_an_environment_that_hangs_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    check_run(make_toy("env.id=toy_envs:Broken-v0", "env.kwargs={how: slow}", "parallelism.timeout_s=1"))
    error = capsys.readouterr().err
    assert error.startswith("dqnspeed: env.id=toy_envs:Broken-v0: has not answered for 1 s (")
    assert "toy_envs.py:" in error and error.endswith("Ctrl-C ends the wait.\n") and error.count("\n") == 1


@pytest.mark.slow
def test_a_class_that_is_not_registered_can_be_named(tmp_path: Path) -> None:
    run = make_toy("parallelism=overlap", "env.id=toy_envs:Counter", "env.kwargs={length: 5}", "stop.max_steps=120",
                   "eval.every_steps=100", "eval.episodes=1")  # fmt: skip
    assert train_in(tmp_path, run)["updates"] > 0
    games = (tmp_path / "episodes.csv").read_text().splitlines()[1:]
    assert {game.split(",")[3] for game in games} == {"5"}


# Environments from the registry that nobody here wrote.
MINIGRID = ["env.id=minigrid:MiniGrid-Empty-5x5-v0", "env.observation_key=image", "model=board"]
THIRD_PARTY = {
    "MinAtar, process": ["env.id=minatar.gym:MinAtar/Breakout-v1", "model=board"],
    "MiniGrid, overlap": MINIGRID,
    "Box2D, serial": ["env.id=LunarLander-v3"],
    "classic control, overlap": ["env.id=Acrobot-v1"],
    "toy text, process": ["env.id=Taxi-v4"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_integration(THIRD_PARTY, "MinAtar, process", "MiniGrid, overlap"))
def test_third_party_environments_train(name: str, tmp_path: Path) -> None:
    # Actors that run free could reach the last step before the learner has looked.
    held = ["parallelism.samples_per_step=16"] if name.endswith("process") else []
    run = make_run("experiment=own_env", *THIRD_PARTY[name], f"parallelism={name.split(', ')[1]}", *held, "num_envs=2",
                   "algo.learning_starts=100", "stop.max_steps=200", "tracking.progress=off")  # fmt: skip
    summary = train_in(tmp_path, run)
    assert summary["updates"] > 0 and summary["agent_steps"] >= 200


@pytest.mark.integration
def test_minigrid_is_learnt(cli: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    """A random agent's mean is about 0.2 there; the shortest way gives 0.95."""
    result = cli("experiment=own_env", *MINIGRID, "model.input_scale=8", "exploration.decay_steps=8000",
                 "stop.reward_bound=0.6", "stop.window=30", "stop.max_minutes=3", "hydra.run.dir=run",
                 timeout=240)  # fmt: skip
    assert "solved in" in result.stdout, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("shape", "first"),
    [
        ((3, 20, 24), True), ((20, 24, 3), False), ((17, 9, 9), True), ((119, 8, 8), True), ((9, 9, 17), False),
        ((4, 4, 4), False), ((210, 160, 3), False), ((16, 4, 4), True),
    ],
)  # fmt: skip
def test_two_equal_sides_are_those_of_a_board(shape: tuple[int, ...], first: bool) -> None:
    env = make_run("experiment=own_env").env
    assert has_channels_first(shape, env) == first
    for channels in ("first", "last"):
        assert has_channels_first(shape, dataclasses.replace(env, channels=channels)) == (channels == "first")


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 1), (6, 5, 3), (6, 5, 4)])
def test_pictures_of_any_channels_are_shown(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    picture = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    with contextlib.closing(make_vector_env(make_toy())) as env:
        monkeypatch.setattr(env.engine, "call", lambda name: picture)
        shown = env.render()
    assert shown.shape == (6, 5, 3)
    np.testing.assert_array_equal(shown[..., 2], picture if len(shape) == 2 else picture[..., min(2, shape[2] - 1)])


def test_a_picture_that_cannot_be_drawn_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(make_vector_env(make_toy())) as env:
        monkeypatch.setattr(env.engine, "call", lambda name: np.zeros((0, 0, 3), np.uint8))
        with pytest.raises(ConfigError, match="gives no rgb_array"):
            env.render()
        monkeypatch.setattr(env.engine, "call", mock.Mock(side_effect=AttributeError("no GL")))
        with pytest.raises(ConfigError, match=r"itself \(AttributeError: no GL\)"):
            env.render()


def test_a_game_may_be_named_with_the_module_that_registers_it() -> None:
    assert atari_game(make_run("env.id=ale_py:ALE/Pong-v5").env) == atari_game(make_run("env.id=ALE/Pong-v5").env)
