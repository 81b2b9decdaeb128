"""Environments that step side by side on threads of Python."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from dqnspeed.config.options import option
from dqnspeed.config.registry import register
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import make_env
from dqnspeed.envs.backends.base import ActorErrors, Backend, Engine, RawStep
from dqnspeed.envs.games import atari_game
from dqnspeed.envs.resumable import Resumable


@register("backend", "thread_pool")
@dataclass(frozen=True)
class ThreadPool(Backend):
    """Threads of Python, for environments that wait: for a server, a simulator or a robot."""

    threads: int = option(
        "threads that step environments (in each actor), 0: shared out with execution.threads", ge=0, default=0
    )

    def check(self, run: RunConfig) -> None:
        if atari_game(run.env) is not None:
            raise self.refusal(f"does not count lives, and {run.env.id} is an ALE game")

    def make(self, run: RunConfig, overlap: bool, render_mode: str | None, seeds: Sequence[int]) -> Engine:
        envs = [Resumable(make_env(run.env, run.wrappers, render_mode)) for _ in range(run.num_envs)]
        return ThreadPoolEngine(envs, self.threads or run.num_envs)


class ThreadPoolEngine:
    device = None  # actions are NumPy arrays

    def __init__(self, envs: list[Resumable], threads: int):
        self.num_envs = len(envs)
        self._envs = envs
        self._pool = ThreadPoolExecutor(threads)
        self._over = np.zeros(self.num_envs, bool)
        self._steps: list[Future[Any]] = []

    def reset(self, seeds: list[int]) -> RawStep:
        with ActorErrors():
            frames = list(self._pool.map(lambda env, seed: env.reset(seed=seed)[0], self._envs, seeds))
        self._over = np.zeros(self.num_envs, bool)
        return RawStep(np.stack(frames), np.zeros(self.num_envs), self._over, self._over, lives=None)

    def send(self, actions: np.ndarray) -> None:
        self._steps = [self._pool.submit(self._step, i, action) for i, action in enumerate(actions)]

    def recv(self) -> RawStep:
        with ActorErrors():
            results = [step.result() for step in self._steps]
        frames, rewards, terminated, truncated = map(np.array, zip(*results, strict=True))
        self._over = terminated | truncated
        return RawStep(frames, rewards, terminated, truncated, lives=None)

    def _step(self, i: int, action: int) -> tuple[np.ndarray, float, bool, bool]:
        if self._over[i]:  # the step after an end starts the next episode
            return self._envs[i].reset()[0], 0.0, False, False
        frame, reward, terminated, truncated, _ = self._envs[i].step(action)
        return frame, float(reward), bool(terminated), bool(truncated)

    def save_games(self) -> list[dict[str, Any]]:
        return [env.game for env in self._envs]

    def restore_games(self, games: list[dict[str, Any]]) -> bool:
        for env, game in zip(self._envs, games, strict=True):
            env.game = game
        return all(env.games_restored for env in self._envs)

    def call(self, name: str) -> Any:
        return self._envs[0].get_wrapper_attr(name)()

    def close(self) -> None:
        self._pool.shutdown()
        for env in self._envs:
            env.close()
