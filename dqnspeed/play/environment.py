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
    """The space of an agent's observations: of pixels up to what they can hold, of other numbers without bounds."""
    dtype = spec.frame_dtype
    low, high = (0, np.iinfo(dtype).max) if np.issubdtype(dtype, np.integer) else (-np.inf, np.inf)
    return spaces.Box(low, high, spec.observation_shape, dtype.type)


class AgentEnv(gymnasium.Env[np.ndarray, int]):
    """A game with the wrappers and the stack of a run, whose observations are those of its agent.

    An episode is a whole game with all its lives, and rewards are not clipped. ``info["episode"]`` of the last step has
    the return ``r`` and the length ``l``, agent steps.
    """

    def __init__(self, run: RunConfig, spec: EnvSpec, render_mode: str | None = None):
        self.observation_space = observation_space(spec)
        self.action_space: Any = spaces.Discrete(spec.num_actions)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": spec.render_fps}
        self.render_mode = render_mode
        self._env = envs.make_vector_env(dataclasses.replace(run, num_envs=1), render_mode=render_mode)
        self._stack = envs.FrameStack(1, spec.stack, spec.frame_shape, spec.frame_dtype)
        self._playing = False  # between a reset and the end of its game
        self._start_reward = 0.0  # belongs to the first step

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start a game; without a ``seed``, with the next one of this environment's generator."""
        super().reset(seed=seed)
        own = int(self.np_random.integers(2**31)) if seed is None else seed
        self._stack.push(self._env.reset([own]), np.ones(1, bool))
        presses = range(self._env.start_presses)
        self._start_reward = sum(float(self._advance(0).raw.rewards[0]) for _ in presses)
        self._playing = True
        return self._observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One agent step.

        Raises:
            ValueError: ``action`` is none of :attr:`action_space`, or there is no game yet, or none any more.
        """
        if not self.action_space.contains(action):
            raise ValueError(f"action: is {action!r}, and this game takes whole numbers from 0 to {self._last_action}.")
        if not self._playing:
            raise ValueError("step: no game is being played; reset() starts one.")
        step = self._advance(action)
        reward, self._start_reward = float(step.raw.rewards[0]) + self._start_reward, 0.0
        while self._env.ignores[0] and not step.episodes:  # a lost life: the action after it is not the agent's
            step = self._advance(0)
            reward += float(step.raw.rewards[0])
        info = dict[str, Any]()
        self._playing = not step.episodes
        for game in step.episodes:
            info["episode"] = {"r": game.episode_return, "l": game.length}
        terminated, truncated = bool(step.raw.terminated[0]), bool(step.raw.truncated[0])
        return self._observation(), reward, terminated, truncated, info

    def render(self) -> np.ndarray:
        """A picture ``(h, w, 3) uint8`` of the game.

        Raises:
            ValueError: it was made without ``render_mode="rgb_array"``.
        """
        if self.render_mode is None:
            raise ValueError('render: needs make_env(render_mode="rgb_array").')
        return self._env.render()

    def close(self) -> None:
        self._playing = False
        self._env.close()

    @property
    def _last_action(self) -> int:
        return int(self.action_space.n) - 1

    def _advance(self, action: int) -> Step:
        self._env.send(np.array([action], np.int64))
        step = self._env.recv()
        self._stack.push(step.frames, step.first)
        return step

    def _observation(self) -> np.ndarray:
        return np.array(host(self._stack.observations[0]))  # the stack itself is overwritten
