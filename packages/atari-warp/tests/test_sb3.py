"""Stable-Baselines3's ``VecEnv``: equal to its own wrappers, and its protocol."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import ale_py
import gymnasium
from atari_warp.sb3 import VecEnv
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor, load_results
from stable_baselines3.common.vec_env import VecFrameStack

# No choice is left to chance, and frames before the first are black, as in VecFrameStack.
FIXED_START = {"noop_max": 1, "stack_padding": "zero"}


SHORT = 160  # frames


@pytest.fixture
def pong() -> Iterator[VecEnv]:
    """Two games of Pong that are truncated after some steps."""
    env = VecEnv("pong", 2, seed=1, max_num_frames_per_episode=SHORT, render_mode="rgb_array", num_threads=1)
    yield env
    env.close()


def play(env: Any, steps: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]]:
    """Results of random steps, the same ones in each call."""
    generator = np.random.default_rng(0)
    return [env.step(generator.integers(env.action_space.n, size=env.num_envs)) for _ in range(steps)]


def statistics(info: dict[str, Any]) -> tuple[float, int] | None:
    return (info["episode"]["r"], info["episode"]["l"]) if "episode" in info else None


def test_importing_atari_warp_does_not_import_stable_baselines3() -> None:
    check = "import sys, atari_warp; assert 'stable_baselines3' not in sys.modules; atari_warp.sb3.VecEnv"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_games_and_infos_equal_those_of_make_atari_env() -> None:
    """Pictures differ a little: Stable-Baselines3 takes the maximum of two frames before it makes them gray."""
    gymnasium.register_envs(ale_py)
    theirs = make_atari_env("MsPacmanNoFrameskip-v4", 2, wrapper_kwargs={"noop_max": FIXED_START["noop_max"]})
    theirs = VecFrameStack(theirs, 4)
    ours = VecEnv("ms_pacman", 2, num_threads=1, **FIXED_START)
    np.testing.assert_array_equal(theirs.reset().transpose(0, 3, 1, 2), ours.reset())
    games = 0
    for one, other in zip(play(theirs, 800), play(ours, 800), strict=True):
        assert np.abs(one[0].transpose(0, 3, 1, 2) - other[0].astype(int)).mean() < 1
        for theirs_result, result in zip(one[1:3], other[1:3], strict=True):
            assert theirs_result.dtype == result.dtype
            np.testing.assert_array_equal(theirs_result, result)
        for k in range(2):
            theirs_info, info = one[3][k], other[3][k]
            assert theirs_info.keys() <= info.keys()
            assert statistics(theirs_info) == statistics(info)
            for name in ("lives", "episode_frame_number", "frame_number", "TimeLimit.truncated"):
                assert theirs_info[name] == info[name]
        games += sum(statistics(info) is not None for info in other[3])
    assert games == 2
    theirs.close()
    ours.close()


def test_games_are_counted_apart_if_one_ends_before_the_next_life_begins() -> None:
    """After FIRE and then RIGHT, Breakout takes a life in the step of frames 97 to 100, and frame 101 is the last."""
    env = VecEnv("breakout", 1, seed=1, num_threads=1, noop_max=0, use_fire_reset=False, max_num_frames_per_episode=101)
    env.reset()
    for action in [1, *[2] * 24]:
        *_, (info,) = env.step(np.array([action]))
    assert info["episode"]["l"] == 100
    env.close()


def test_a_truncated_game_has_its_last_observation_and_statistics(pong: VecEnv) -> None:
    before = pong.reset()
    for observations, _, dones, infos in play(pong, 60):
        for k in np.flatnonzero(dones):
            assert infos[k]["TimeLimit.truncated"] is True
            assert infos[k]["episode"]["l"] == infos[k]["episode_frame_number"] >= SHORT
            last = infos[k]["terminal_observation"]
            np.testing.assert_array_equal(last[:-1], before[k, 1:])  # one frame more
            assert (observations[k] == observations[k, :1]).all()  # and starts again with the next game
            assert pong.reset_infos[k]["episode_frame_number"] < SHORT
        if dones.any():
            return
        assert not any(info["TimeLimit.truncated"] for info in infos)
        before = observations
    raise AssertionError("no game was truncated")


def test_a_lost_life_ends_an_episode_but_no_game() -> None:
    env = VecEnv("breakout", 1, seed=0, num_threads=1)
    env.reset()
    lives, points, ends = 5, 0.0, 0
    for _, _, dones, infos in play(env, 1500):
        points += infos[0]["unclipped_reward"]
        if not dones[0]:
            continue
        ends += 1
        lives -= 1
        assert infos[0]["lives"] == lives and not infos[0]["TimeLimit.truncated"]
        assert ("episode" in infos[0]) == (lives == 0)
        if lives == 0:
            assert infos[0]["episode"]["r"] == points
            lives, points = 5, 0.0
    assert ends > 5
    env.close()


def test_an_observation_outlives_the_next_step(pong: VecEnv) -> None:
    pong.reset()
    observations = pong.step(np.zeros(2, int))[0]
    copy = observations.copy()
    play(pong, 5)
    np.testing.assert_array_equal(observations, copy)


def test_seeds_choose_the_games_of_one_reset(pong: VecEnv) -> None:
    def observations(seed: int | None) -> np.ndarray:
        if seed is not None:
            assert pong.seed(seed) == [seed, seed + 1]
        pong.reset()
        return np.array([pong.step(np.zeros(2, int))[0] for _ in range(20)])

    first = observations(5)
    assert (observations(5) == first).all()
    assert (observations(6)[:, 0] == first[:, 1]).all()  # each environment has its own seed
    assert not (observations(None) == observations(None)).all()


def test_colors_are_channels_first() -> None:
    env = VecEnv("pong", 2, grayscale=False, stack_num=2, img_height=50, img_width=40, num_threads=1)
    observations = env.reset()
    assert env.observation_space.shape == (6, 50, 40) and observations.shape == (2, 6, 50, 40)
    reds = env.env.reset(seed=np.array([0, 1]))[0][..., 0]
    env.seed(0)
    np.testing.assert_array_equal(env.reset()[:, ::3], reds)
    env.close()


def test_attributes_methods_and_pictures(pong: VecEnv) -> None:
    pong.reset()
    assert pong.get_attr("render_mode", 0) == ["rgb_array"]
    assert not pong.has_attr("absent")
    assert pong.env_method("get_action_meanings", indices=[1])[0][0] == "NOOP"
    pong.set_attr("note", 3)
    assert pong.get_attr("note") == [3, 3]
    assert pong.env_is_wrapped(Monitor) == [True, True]
    assert pong.env_is_wrapped(gymnasium.wrappers.TimeLimit, 0) == [False]
    assert [image.shape for image in pong.get_images()] == [(210, 160, 3)] * 2
    assert pong.render().shape == (420, 160, 3) or pong.render().shape == (210, 320, 3)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda env: env.set_attr("note", 3, indices=0), "indices=0: set_attr changes all environments"),
        (lambda env: env.env_method("reset", indices=0), "method_name=reset: all environments do it together"),
        (lambda env: env.set_options({"mode": 1}), "a reset takes none"),
        (lambda env: VecEnv("pong", autoreset_mode="NextStep"), "autoreset_mode=NextStep: is chosen by VecEnv"),
        (lambda env: VecEnv("pogn"), "Did you mean pong"),
    ],
)
def test_refusals(pong: VecEnv, call: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        call(pong)


def test_statistics_are_written_where_load_results_finds_them(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    env = VecEnv("pong", 2, monitor_dir=tmp_path / "logs", max_num_frames_per_episode=SHORT, num_threads=1)
    env.reset()
    games = [statistics(info) for result in play(env, 60) for info in result[3] if statistics(info)]
    env.close()
    env.close()
    found = load_results(str(tmp_path / "logs"))
    assert isinstance(found, pandas.DataFrame)
    assert list(zip(found["r"], found["l"], strict=True)) == games


@pytest.mark.integration
@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_an_algorithm_trains_without_a_transposed_copy(algorithm: type[PPO] | type[DQN], pong: VecEnv) -> None:
    settings = {"n_steps": 32, "batch_size": 16} if algorithm is PPO else {"buffer_size": 100, "learning_starts": 20}
    model = algorithm("CnnPolicy", pong, seed=3, **settings)
    assert model.get_env() is pong
    model.learn(128)
    assert len(model.ep_info_buffer) > 0


@pytest.mark.integration
def test_a_model_of_make_atari_env_loads(tmp_path: Path, pong: VecEnv) -> None:
    gymnasium.register_envs(ale_py)
    theirs = VecFrameStack(make_atari_env("PongNoFrameskip-v4", 2), 4)
    PPO("CnnPolicy", theirs, n_steps=8, batch_size=16).save(tmp_path / "model")
    theirs.close()
    PPO.load(tmp_path / "model", env=pong).learn(16)


@pytest.mark.integration
def test_policies_are_evaluated_on_whole_games() -> None:
    env = VecEnv("breakout", 2, seed=1, max_num_frames_per_episode=4000, num_threads=1)
    model = PPO("CnnPolicy", env, n_steps=32)
    returns, lengths = evaluate_policy(model, env, 2, deterministic=False, return_episode_rewards=True)
    assert len(returns) == 2 and min(lengths) > 300  # frames
    env.close()
