"""Emulator as the backend of a run: equal to wrappers on the host, and errors where it is missing or broken."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("atari_warp")

from atari_warp import ConsoleBatch, Preprocessing

import dqnspeed
from dqnspeed.config.options import ConfigError
from dqnspeed.envs.backends._warp_engine import WarpEngine
from dqnspeed.envs.frame_stack import FrameStack
from dqnspeed.envs.vector import VectorEnv

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "stages",
    [
        {"episodic_life": True, "clip_reward": True, "stack_size": 4, "fire_reset": True},
        {"stack_size": 3, "grayscale": False, "screen_size": None, "clip_reward": True, "sticky_actions": 0.25},
        {"episodic_life": True, "stack_size": 2, "frame_skip": 3, "grayscale": False, "tap_frames": 1},
    ],
)
def test_episodes_and_stacks_of_the_device_equal_those_of_the_wrappers(device: str, stages: dict[str, Any]) -> None:
    agents, backend = (
        ConsoleBatch("breakout", 5, device, Preprocessing(**of, actions=(0, 1, 3, 4), max_episode_frames=650))
        for of in (stages, {k: v for k, v in stages.items() if k not in ("episodic_life", "clip_reward", "stack_size")})
    )
    env = VectorEnv(
        WarpEngine(backend, ["NOOP", "FIRE", "RIGHT", "LEFT"], overlap=False),
        clip_reward=stages.get("clip_reward", False),
        episodic_life=stages.get("episodic_life", False),
        life_action=~int(stages.get("fire_reset", False)),
    )
    draws, seeds = np.random.default_rng(2), list(range(5))
    frames = torch.as_tensor(env.reset(seeds)).cpu().numpy().copy()
    stack = FrameStack(5, stages["stack_size"], frames.shape[1:], frames.dtype)
    stack.push(frames, np.ones(5, bool))
    agents.reset(seeds)
    np.testing.assert_array_equal(agents.observations.numpy(), stack.observations)
    assert agents.episode_start.numpy().all()
    seen = {"reward": 0, "terminated": 0, "truncated": 0, "episode_start": 0}
    for k in range(500):
        actions = draws.integers(0, 4, 5)
        env.send(actions)
        step = env.recv()
        stack.push(torch.as_tensor(step.frames).cpu().numpy(), step.first)
        agents.step(actions)
        for name, expected in (("reward", step.rewards), ("episode_start", step.first), ("lives", step.raw.lives),
                               ("terminated", step.terminated), ("truncated", step.truncated)):  # fmt: skip
            np.testing.assert_array_equal(getattr(agents, name).numpy(), expected, name)
            seen[name] = seen.get(name, 0) + int(np.count_nonzero(expected))
        np.testing.assert_array_equal(agents.observations.numpy(), stack.observations)
        if k == 250:
            saved, agents = agents.save_state(), ConsoleBatch("breakout", 5, device, agents._preprocessing)
            agents.load_state(saved)
    assert all(seen.values()), seen


def test_without_the_emulator_an_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "atari_warp", None)
    with pytest.raises(ConfigError, match=r"^backend=atari_warp: .* pip install 'dqnspeed\[emulator\]'"):
        dqnspeed.compose(["backend=atari_warp"])
