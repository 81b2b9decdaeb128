"""ALE's own environment of a game, and what is asked of it."""

from __future__ import annotations

import functools

import gymnasium
from ale_py.env import AtariEnv

from dqnspeed.config.schema import WrappersConfig
from dqnspeed.envs.games import AtariGame
from dqnspeed.envs.wrappers import action_index


def make_atari(game: AtariGame, wrappers: WrappersConfig | None, render_mode: str | None = None) -> gymnasium.Env:
    """The game without sticky actions, one frame a step."""
    made: gymnasium.Env = AtariEnv(
        render_mode=render_mode,
        game=game.rom,
        mode=game.mode,
        difficulty=game.difficulty,
        obs_type="grayscale" if wrappers is None or wrappers.grayscale else "rgb",
        frameskip=1,
        repeat_action_probability=0.0,  # StickyActions does it: a saved state of ALE lacks the action to repeat
        full_action_space=game.full_action_space,
        max_num_frames_per_episode=game.max_episode_frames,
    )
    return made


@functools.cache
def fire_index(game: AtariGame) -> int | None:
    """The action FIRE; ``None`` if the game has none, or if it changes the reward (as the match in Haunted House)."""
    env = make_atari(game, None)
    try:
        fire = action_index(env, "FIRE")
        if fire is None:
            return None
        env.reset()  # a seed would load the game once more
        _, reward, terminated, truncated, _ = env.step(fire)
        return None if reward or terminated or truncated else fire
    finally:
        env.close()


@functools.cache
def start_rewards(game: AtariGame, fire: bool, noop_max: int) -> dict[int, float] | None:
    """Total reward of FIRE and no-ops at a game's start, by the frame of the game (time in Skiing, walls in Entombed),
    or ``None`` if there is none, as in most games."""
    if not noop_max:
        return None  # FIRE is pressed only where it brings no reward
    env = make_atari(game, None)
    try:
        noop, press = action_index(env, "NOOP"), fire_index(game) if fire else None
        frame, rewards = env.reset(seed=0)[1]["episode_frame_number"], [0.0]
        for action in [press] * (press is not None) + [noop] * (noop_max if noop is not None else 0):
            _, reward, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                break
            rewards.append(rewards[-1] + float(reward))
        return {frame + i: reward for i, reward in enumerate(rewards)} if any(rewards) else None
    finally:
        env.close()
