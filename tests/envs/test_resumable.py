"""Saved states of games in progress that are no Atari games."""

from __future__ import annotations

import ale_py
import gymnasium
import numpy as np
import pytest

from dqnspeed.envs.resumable import Resumable


@pytest.mark.parametrize("episode", [1, 2, "over"])
def test_an_ale_game_that_a_user_wraps_is_repeated_with_all_that_the_wrappers_keep(episode: int | str) -> None:
    gymnasium.register_envs(ale_py)
    made = [
        Resumable(
            gymnasium.wrappers.FrameStackObservation(
                gymnasium.make("ALE/Pong-v5", frameskip=4, max_episode_steps=5 if episode == "over" else 1000), 2
            )
        )
        for _ in range(2)
    ]
    made[0].reset(seed=1)
    for k in range(5):
        made[0].step(k)
    if episode == 2:  # which has no seed
        made[0].reset()
        for k in range(60):
            made[0].step(k % 6)
    made[1].reset(seed=2)
    made[1].game = made[0].game
    assert made[1].games_restored
    if episode == "over":  # a vector environment begins the next game, and the restored one does
        np.testing.assert_array_equal(made[0].reset()[0], made[1].step(0)[0])
    for k in range(60):  # with sticky actions, whose random numbers are ALE's own
        frames = [env.step(k % 6)[0] for env in made]
        np.testing.assert_array_equal(*frames)
    assert frames[0].shape[0] == 2
