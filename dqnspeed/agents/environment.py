"""The environment of a trained agent, with Gymnasium's interface."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from dqnspeed import envs
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec, Step
from dqnspeed.execution.arrays import host


def observation_space(spec: EnvSpec) -> spaces.Box:
    """Space of an agent's observations: integers within the range of their dtype, floats without bounds."""
    dtype = spec.frame_dtype
    low, high = (0, np.iinfo(dtype).max) if np.issubdtype(dtype, np.integer) else (-np.inf, np.inf)
    return spaces.Box(low, high, spec.observation_shape, dtype.type)


class AgentEnv(gymnasium.Env[np.ndarray, int]):
    """A game with the wrappers and the stack of a run, whose observations fit its agent.

    An episode is a whole game with all its lives, and rewards are not clipped. ``info["episode"]`` of the last step has
    the return ``r`` and the length ``l``, in agent steps.
    """

    def __init__(self, run: RunConfig, spec: EnvSpec, render_mode: str | None = None):
        self.observation_space = observation_space(spec)
        self.action_space: Any = spaces.Discrete(spec.num_actions)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": spec.render_fps}
        self.render_mode = render_mode
        self._env = envs.make_vector_env(dataclasses.replace(run, num_envs=1), render_mode=render_mode)
        self._stack = envs.FrameStack(1, spec.stack, spec.frame_shape, spec.frame_dtype)
        self._is_playing = False
        self._reward = 0.0  # from actions before the agent's first or next action

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start a game; without a ``seed``, the next game of this environment's random generator."""
        super().reset(seed=seed)
        game_seed = int(self.np_random.integers(2**31)) if seed is None else seed
        self._stack.push(self._env.reset([game_seed]), np.ones(1, bool))
        self._is_playing, self._reward = True, 0.0
        for _ in range(self._env.start_presses):
            self._advance(0)
        return self._observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Do one agent step.

        Raises:
            ValueError: ``action`` is not in :attr:`action_space`, or no game is being played.
        """
        if not self.action_space.contains(action):
            last = int(self.action_space.n) - 1
            raise ValueError(f"action: is {action!r}, and this game takes whole numbers from 0 to {last}.")
        if not self._is_playing:
            raise ValueError("step: no game is being played. Start one by reset().")
        step = self._advance(action)
        while self._env.ignores[0] and not step.episodes:  # the game ignores an action after a lost life
            step = self._advance(0)
        reward, self._reward = self._reward, 0.0
        self._is_playing = not step.episodes
        info = dict[str, Any]()
        for game in step.episodes:
            info["episode"] = {"r": game.episode_return, "l": game.length}
        terminated, truncated = bool(step.raw.terminated[0]), bool(step.raw.truncated[0])
        return self._observation(), reward, terminated, truncated, info

    def render(self) -> np.ndarray:
        """Image ``(h, w, 3) uint8`` of the game.

        Raises:
            ValueError: the environment was made without ``render_mode="rgb_array"``.
        """
        if self.render_mode is None:
            raise ValueError('render: needs make_env(render_mode="rgb_array").')
        return self._env.render()

    def close(self) -> None:
        self._is_playing = False
        self._env.close()

    def _advance(self, action: int) -> Step:
        self._env.send(np.array([action], np.int64))
        step = self._env.recv()
        self._stack.push(step.frames, step.first)
        self._reward += float(step.raw.rewards[0])
        return step

    def _observation(self) -> np.ndarray:
        return np.array(host(self._stack.observations[0]))  # a copy, because the stack is overwritten
