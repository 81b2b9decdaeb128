"""N environments with a policy: the part that every kind of parallelism runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dqnspeed.envs import EnvSpec, Episode, FrameStack, VectorEnv
from dqnspeed.replay import Rows

Policy = Callable[[np.ndarray, float], np.ndarray]


@dataclass(slots=True)
class Collected:
    """What came in since the last look."""

    agent_steps: int = 0
    episodes: list[Episode] = field(default_factory=list)
    epsilon: float = 1.0


class EnvStepper:
    """Acts in N environments and turns steps into replay rows.

    :meth:`start` chooses actions and lets the environments go, :meth:`finish` waits for them. ``seconds`` holds
    the time spent in ``acting`` and ``stepping``.
    """

    def __init__(self, env: VectorEnv, spec: EnvSpec, policy: Policy, seeds: list[int]):
        self._env, self._policy = env, policy
        self._stack = FrameStack(env.num_envs, spec.stack, spec.frame_shape, spec.frame_dtype)
        self._frames = np.array(env.reset(seeds))
        self._first = np.ones(env.num_envs, bool)
        self._stack.push(self._frames, self._first)
        self.seconds = {"acting": 0.0, "stepping": 0.0, "waiting": 0.0}

    def start(self, epsilon: float) -> None:
        begin = time.perf_counter()
        self._actions = self._policy(self._stack.observations, epsilon)
        acted = time.perf_counter()
        self._env.send(self._actions)
        self.seconds["acting"] += acted - begin
        self.seconds["stepping"] += time.perf_counter() - acted

    def finish(self) -> tuple[Rows, list[Episode]]:
        """The rows of the step begun by :meth:`start`, one for each environment, and the games it ended."""
        begin = time.perf_counter()
        step = self._env.recv()
        rows = Rows(
            frames=self._frames,
            actions=self._actions,
            rewards=step.rewards,
            terminated=step.terminated,
            truncated=step.truncated,
            first=self._first,
            transition=~step.first,
        )
        self._frames, self._first = np.array(step.frames), step.first
        self._stack.push(self._frames, self._first)
        self.seconds["stepping"] += time.perf_counter() - begin
        return rows, step.episodes

    def close(self) -> None:
        self._env.close()


def env_seeds(seed: int, actor: int, num_envs: int) -> list[int]:
    """Seeds for one actor's environments: all different, also between actors and neighbouring run seeds."""
    return [int(s) for s in np.random.SeedSequence([seed, actor]).generate_state(num_envs) % 2**31]
