"""Emulator as the backend of a run: equal to wrappers on the host, and errors where it is missing or broken."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("atari_warp")

from atari_warp import AtariVectorEnv

import dqnspeed
from dqnspeed.config.options import ConfigError
from dqnspeed.envs.backends._warp_engine import WarpEngine
from dqnspeed.envs.frame_stack import FrameStack
from dqnspeed.envs.vector import VectorEnv


def channels_first(observations: torch.Tensor) -> np.ndarray:
    """Observations ``(N, stack * channels, H, W)``."""
    frames = observations if observations.ndim == 4 else observations.permute(0, 1, 4, 2, 3).flatten(1, 2)
    return frames.cpu().numpy()


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "stages",
    [
        {"episodic_life": True, "reward_clipping": True, "stack_num": 4, "use_fire_reset": True},
        {"stack_num": 3, "grayscale": False, "img_height": None, "img_width": None, "reward_clipping": True,
         "repeat_action_probability": 0.25},
        {"episodic_life": True, "stack_num": 2, "frameskip": 3, "grayscale": False, "tap_frames": 1},
    ],
)  # fmt: skip
def test_episodes_and_stacks_of_the_environment_equal_those_of_the_wrappers(
    device: str, stages: dict[str, Any]
) -> None:
    common = {"use_fire_reset": False, "max_num_frames_per_episode": 650, "device": device, "array": "torch"}
    ours = {"episodic_life": False, "reward_clipping": False, "stack_num": 1}
    make = functools.partial(AtariVectorEnv, "breakout", 5, preset="standard", compile_rom=False, num_threads=1)
    agents, backend = (make(**{**common, **ours, **of}) for of in (stages, {**stages, **ours}))
    fire = int(stages.get("use_fire_reset", False))
    env = VectorEnv(
        WarpEngine(backend, overlap=False),
        clip_reward=stages.get("reward_clipping", False),
        episodic_life=stages.get("episodic_life", False),
        life_action=~fire if "repeat_action_probability" in stages else fire,
    )
    draws, seeds = np.random.default_rng(2), list(range(5))
    frames = torch.as_tensor(env.reset(seeds)).cpu().numpy().copy()
    stack = FrameStack(5, stages["stack_num"], frames.shape[1:], frames.dtype)
    stack.push(frames, np.ones(5, bool))
    observations, _ = agents.reset(seed=seeds)
    np.testing.assert_array_equal(channels_first(observations), stack.observations)
    seen = {"reward": 0, "terminated": 0, "truncated": 0, "lives": 0}
    for k in range(500):
        actions = draws.integers(0, 4, 5)
        env.send(actions)
        step = env.recv()
        stack.push(torch.as_tensor(step.frames).cpu().numpy(), step.first)
        observations, reward, terminated, truncated, info = agents.step(actions)
        for name, found, expected in (
            ("reward", reward, step.rewards), ("lives", info["lives"], step.raw.lives),
            ("terminated", terminated, step.terminated), ("truncated", truncated, step.truncated),
        ):  # fmt: skip
            np.testing.assert_array_equal(found, expected, name)
            seen[name] += int(np.count_nonzero(expected))
        np.testing.assert_array_equal(channels_first(observations), stack.observations)
        if k == 250:
            saved, agents = agents.save_state(), make(**{**common, **ours, **stages})
            agents.load_state(saved)
    assert all(seen.values()), seen


def test_without_the_emulator_an_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "atari_warp", None)
    with pytest.raises(ConfigError, match=r"^backend=atari_warp: .* pip install 'dqnspeed\[emulator\]'"):
        dqnspeed.compose(["backend=atari_warp"])
