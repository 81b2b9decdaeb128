"""The contract of every vector environment."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
import pytest
from conftest import interrupted, make_run, make_toy

from dqnspeed.envs import Step, VectorEnv, describe, make_vector_env

ATARI = "env=breakout env.max_episode_frames=600"
BACKENDS = {  # overrides, and whether groups of environments take turns
    "toy in turn": ("", False),
    "toy in workers": ("", True),
    "gymnasium in turn": (ATARI, False),
    "tweaked in turn": (f"wrappers=tweaked {ATARI}", False),
    "ale without episodic life": (f"backend=ale wrappers.episodic_life=false {ATARI}", True),
    "sticky gymnasium in workers": (f"env.sticky_actions=0.25 {ATARI}", True),
    "sticky ale": (f"backend=ale env.sticky_actions=0.25 {ATARI}", False),
    "atari_warp on threads": (f"backend=atari_warp backend.threads=2 {ATARI}", True),
}
SEEDS = [11, 22, 33]


def play(env: VectorEnv, num_actions: int, steps: int) -> list[Step]:
    """Random steps, with the frames copied."""
    rng = np.random.default_rng(0)
    taken = []
    for _ in range(steps):
        env.send(rng.integers(num_actions, size=env.num_envs))
        step = env.recv()
        step.frames = np.array(step.frames)
        taken.append(step)
    return taken


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKENDS)
def test_contract(name: str) -> None:
    line, overlap = BACKENDS[name]
    run = (make_run if line else make_toy)(*line.split(), "num_envs=3")
    spec, env = describe(run), make_vector_env(run, overlap)
    frames = np.array(env.reset(SEEDS))
    assert frames.shape == (3, *spec.frame_shape) and frames.dtype == spec.frame_dtype
    steps = play(env, spec.num_actions, 250)

    ended = np.zeros(3, bool)  # whether the step before ended an episode of the learner
    for step in steps:
        assert step.frames.shape == frames.shape and step.frames.dtype == frames.dtype
        assert [a.shape for a in (step.rewards, step.terminated, step.truncated, step.first)] == [(3,)] * 4
        assert (step.rewards.dtype, step.terminated.dtype) == (np.float32, bool)
        # The step after an end opens the next episode: no transition crosses it, nothing ends in it.
        assert (step.first[ended]).all()
        opened = step.first
        assert not (step.rewards[opened].any() or step.terminated[opened].any() or step.truncated[opened].any())
        if run.wrappers.clip_reward:
            assert np.abs(step.rewards).max() <= 1
        ended = step.terminated | step.truncated
    assert any(step.truncated.any() for step in steps) and any(step.terminated.any() for step in steps)
    episodes = [episode for step in steps for episode in step.episodes]
    assert episodes and {episode.env for episode in episodes} == {0, 1, 2}

    # The same seeds give the same games.
    if "Counter" not in run.env.id:
        again = np.array(env.reset(SEEDS))
        np.testing.assert_array_equal(again, frames)
        for before, now in zip(steps[:50], play(env, spec.num_actions, 50), strict=True):
            np.testing.assert_array_equal(before.frames, now.frames)
    env.close()


@pytest.mark.slow
def test_whole_games_are_counted_with_all_their_lives() -> None:
    """A Breakout game is one episode with its real score, though the learner sees five clipped ones."""
    totals = {}
    for episodic in (True, False):
        run = make_run(
            "env=breakout", "backend=ale", "wrappers.noop_max=0", "num_envs=2",
            f"wrappers.episodic_life={episodic}", f"wrappers.clip_reward={episodic}",
        )  # fmt: skip
        env = make_vector_env(run)
        env.reset(SEEDS[:2])
        steps = play(env, 4, 600)
        env.close()
        games = [episode for step in steps for episode in step.episodes]
        ends = sum(int(step.terminated.sum()) for step in steps)
        totals[episodic] = (len(games), ends)
        assert all(game.episode_return == int(game.episode_return) >= 0 for game in games)
    assert totals[False][1] == totals[False][0] > 0
    assert totals[True][1] >= 5 * totals[True][0] > 0


def test_a_return_is_the_unclipped_sum_and_a_length_counts_agent_steps() -> None:
    env = make_vector_env(make_toy("num_envs=1", "wrappers.clip_reward=true"))
    env.reset([5])
    actions = [0, 1, 2, 0, 1, 2, 0]
    for action in actions:
        env.send(np.array([action]))
        step = env.recv()
    (game,) = step.episodes
    assert game.episode_return == sum(10 * a for a in actions) + sum(range(1, 8))
    assert game.length == 7
    env.close()


def test_a_signal_between_any_two_instructions_of_a_step_is_its_only_error() -> None:
    """Fails also if a generator that is left behind complains, since this is a warning."""
    run = make_toy("num_envs=2")

    def step() -> None:
        env.send(np.zeros(2, np.int64))
        env.recv()

    for position in itertools.count(1):
        with contextlib.closing(make_vector_env(run, False)) as env:
            env.reset(SEEDS[:2])
            if not interrupted(step, position, "dqnspeed/envs/backends", contextlib.__file__):
                break
    assert position > 20


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["gymnasium", "ale", "atari_warp"])
def test_a_press_for_the_agent_takes_effect_with_sticky_actions(backend: str) -> None:
    """Breakout waits for FIRE at its start and after a lost life: with NOOP alone no game would be lost."""
    run = make_run(f"backend={backend}", "env.id=ALE/Breakout-v5", "num_envs=8", "env.max_episode_frames=3000")
    env, ends = make_vector_env(run), np.zeros(8, int)
    env.reset(list(range(8)))
    lives = np.full(8, 5)
    for _ in range(300):
        env.send(np.zeros(8, np.int64))
        step = env.recv()
        lives = np.minimum(lives, np.where(ends > 0, 0, step.raw.lives))
        ends += step.raw.terminated
        if ends.all():
            break
    env.close()
    assert not lives.any(), lives
