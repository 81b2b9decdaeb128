"""The standard protocol, and what departs from it."""

from __future__ import annotations

import dataclasses

import pytest
from conftest import make_run

from dqnspeed.config.schema import WrappersConfig
from dqnspeed.envs.protocol import STANDARD, protocol_of

STICKY = "env.sticky_actions=0.25"


def test_the_protocol_covers_every_wrapper() -> None:
    assert {field.name for field in dataclasses.fields(WrappersConfig)} - {"name"} == STANDARD.keys()


@pytest.mark.parametrize("backend", ["gymnasium", "ale", "atari_warp", "auto"])
def test_every_backend_plays_by_the_standard(backend: str) -> None:
    assert protocol_of(make_run("wrappers=standard", f"backend={backend}")) == "standard"


@pytest.mark.parametrize(
    ("overrides", "protocol"),
    [
        ("env.id=ALE/Pong-v5", "standard (sticky 0.25)"),
        (STICKY, "standard (sticky 0.25)"),
        (f"wrappers.stack=2 {STICKY}", "custom (wrappers.stack=2, env.sticky_actions=0.25)"),
        ("env.sticky_actions=0.1", "custom (env.sticky_actions=0.1)"),
        ("env.full_action_space=true", "custom (env.full_action_space=true)"),
        ("env.max_episode_frames=1000", "custom (env.max_episode_frames=1000)"),
        ("env.difficulty=1", "custom (env.difficulty=1)"),
        ("wrappers.noop_max=10", "custom (wrappers.noop_max=10)"),
        ("wrappers.fire_reset=false", "custom (wrappers.fire_reset=false)"),
        ("wrappers.frame_skip=3", "custom (wrappers.frame_skip=3)"),
        ("wrappers.max_pool=false", "custom (wrappers.max_pool=false)"),
        ("wrappers.episodic_life=false", "custom (wrappers.episodic_life=false)"),
        ("wrappers.clip_reward=false", "custom (wrappers.clip_reward=false)"),
        ("env.id=CartPole-v1 wrappers=none model=mlp", None),
    ],
)
def test_departures_are_named(overrides: str, protocol: str | None) -> None:
    assert protocol_of(make_run("wrappers=standard", *overrides.split())) == protocol
