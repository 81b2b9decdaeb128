"""The three libraries that step several environments, behind the two calls :class:`VectorEnv` needs.

All run in Gymnasium's NEXT_STEP autoreset: the step after an episode's end ignores its action and returns the
first frame of the next episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass(slots=True)
class RawStep:
    """One step of N environments as the library gave it."""

    frames: np.ndarray  # (N, C, ...)
    rewards: np.ndarray  # (N,) unclipped
    terminated: np.ndarray  # (N,) bool
    truncated: np.ndarray  # (N,) bool
    lives: np.ndarray | None  # (N,) int, where the game has lives


class Backend(Protocol):
    num_envs: int

    def reset(self, seeds: list[int]) -> RawStep: ...
    def send(self, actions: np.ndarray) -> None: ...
    def recv(self) -> RawStep: ...
    def close(self) -> None: ...


class _GymnasiumBackend:
    def __init__(self, env: Any):
        self.env = env
        self.num_envs: int = env.num_envs

    def reset(self, seeds: list[int]) -> RawStep:
        frames, info = self.env.reset(seed=seeds)
        nothing = np.zeros(self.num_envs, bool)
        return RawStep(frames, nothing.astype(np.float64), nothing, nothing, info.get("lives"))

    def _step(self, step: tuple[Any, ...]) -> RawStep:
        frames, rewards, terminated, truncated, info = step
        return RawStep(frames, rewards, terminated, truncated, info.get("lives"))

    def close(self) -> None:
        self.env.close()


class SyncBackend(_GymnasiumBackend):
    """``gymnasium.vector.SyncVectorEnv``: environments step one after another inside :meth:`recv`."""

    def send(self, actions: np.ndarray) -> None:
        self._actions = actions

    def recv(self) -> RawStep:
        return self._step(self.env.step(self._actions))


class AsyncBackend(_GymnasiumBackend):
    """``gymnasium.vector.AsyncVectorEnv``: each environment steps in a worker process after :meth:`send`.

    A worker that hangs longer than ``timeout`` seconds ends the step with ``multiprocessing.TimeoutError``.
    """

    def __init__(self, env: Any, timeout: float):
        super().__init__(env)
        self._timeout = timeout

    def send(self, actions: np.ndarray) -> None:
        self.env.step_async(actions)

    def recv(self) -> RawStep:
        return self._step(self.env.step_wait(self._timeout))

    def close(self) -> None:
        self.env.close(terminate=True)  # a step that is still under way is not waited for


class NativeBackend:
    """``ale_py.vector_env.AtariVectorEnv``: environments step on C++ threads after :meth:`send`."""

    def __init__(self, env: Any):
        self.env = env
        self.num_envs: int = env.num_envs
        self._channels_last = len(env.single_observation_space.shape) == 4

    def reset(self, seeds: list[int]) -> RawStep:
        frames, info = self.env.reset(seed=np.array([seed % 2**31 for seed in seeds]))
        nothing = np.zeros(self.num_envs, bool)
        return RawStep(self._frames(frames), nothing.astype(np.float64), nothing, nothing, info["lives"])

    def send(self, actions: np.ndarray) -> None:
        self.env.send(actions)

    def recv(self) -> RawStep:
        frames, rewards, terminated, truncated, info = self.env.recv()
        return RawStep(self._frames(frames), rewards, terminated, truncated, info["lives"])

    def _frames(self, frames: np.ndarray) -> np.ndarray:
        return frames[:, 0].transpose(0, 3, 1, 2) if self._channels_last else frames

    def close(self) -> None:
        self.env.close()
