"""``backend=gymnasium``: any environment, and every wrapper."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch

from dqnspeed.config.options import ConfigError
from dqnspeed.config.registry import register
from dqnspeed.config.schema import EnvConfig, RunConfig, WrappersConfig
from dqnspeed.envs.backends.base import ActorError, Backend, Engine, RawStep, actor_errors
from dqnspeed.envs.build import make_env
from dqnspeed.envs.resumable import Resumable
from dqnspeed.envs.workers import AUTORESET, WorkerTraceback, make_in_worker, make_workers

CLOSE_TIMEOUT_S = 3.0
GIVE_UP_EVERY = 100  # steps of a game between two calls of ``give_up``


@register("backend", "gymnasium")
@dataclass(frozen=True)
class Gymnasium(Backend):
    """Gymnasium's vector environments, in this process or, with ``overlap``, in worker processes."""

    priority = 0

    def make(self, run: RunConfig, overlap: bool, render_mode: str | None, seeds: Sequence[int]) -> Engine:
        make = functools.partial(_make_resumable, run.env, run.wrappers, render_mode)
        timeout = run.parallelism.timeout_s
        try:
            if overlap:
                makers = [functools.partial(make_in_worker, make, seed, os.getpid()) for seed in seeds]
                return AsyncEngine(make_workers(makers, timeout), timeout)
            one = gymnasium.vector.SyncVectorEnv([make] * run.num_envs, copy=False, autoreset_mode=AUTORESET)
            return SyncEngine(one)
        except RuntimeError as error:
            if "not equivalent" not in str(error):
                raise
            raise ConfigError(
                f"env.id={run.env.id}: its instances differ in their spaces. Give all the same observation and action "
                f"space."
            ) from error


def _make_resumable(env: EnvConfig, wrappers: WrappersConfig, render_mode: str | None) -> gymnasium.Env:
    return Resumable(make_env(env, wrappers, render_mode))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress Gymnasium's warnings, which only announce the error it raises next."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class GymnasiumEngine:
    """Engine over a Gymnasium vector environment whose environments are :class:`Resumable`."""

    device: torch.device | None = None

    def __init__(self, env: Any):
        self.env = env
        self.num_envs: int = env.num_envs

    def reset(self, seeds: list[int]) -> RawStep:
        return self._first_step(*self.env.reset(seed=seeds))

    def save_games(self) -> list[dict[str, Any]] | None:
        return list(self.env.get_attr("game"))

    def restore_games(self, games: list[dict[str, Any]]) -> bool:
        self.env.set_attr("game", games)
        return all(self.env.get_attr("games_restored"))

    def call(self, name: str) -> Any:
        return self.env.call(name)[0]

    def _first_step(self, frames: np.ndarray, info: dict[str, Any]) -> RawStep:
        nothing = np.zeros(self.num_envs, bool)
        return RawStep(frames, np.zeros(self.num_envs), nothing, nothing, info.get("lives"))

    def _step(self, step: tuple[Any, ...]) -> RawStep:
        frames, rewards, terminated, truncated, info = step
        return RawStep(frames, rewards, terminated, truncated, info.get("lives"))

    def close(self) -> None:
        self.env.close()


class SyncEngine(GymnasiumEngine):
    """``gymnasium.vector.SyncVectorEnv``: environments step one after another inside :meth:`recv`.

    What one of them raises becomes an :class:`ActorError`, as from processes.
    """

    def reset(self, seeds: list[int]) -> RawStep:
        with actor_errors():
            return super().reset(seeds)

    def send(self, actions: np.ndarray) -> None:
        self._actions = actions

    def recv(self) -> RawStep:
        with actor_errors():
            return self._step(self.env.step(self._actions))


class AsyncEngine(GymnasiumEngine):
    """``gymnasium.vector.AsyncVectorEnv``: each environment steps in a worker process after :meth:`send`.

    A worker that raises, dies, or hangs longer than ``timeout`` seconds ends the step with :class:`ActorError`.
    """

    def __init__(self, env: Any, timeout: float):
        super().__init__(env)
        self._timeout = timeout

    def reset(self, seeds: list[int]) -> RawStep:
        with self._watched():
            self.env.reset_async(seed=seeds)
            self._wait()
            frames, info = self.env.reset_wait()
            return self._first_step(frames, info)

    def send(self, actions: np.ndarray) -> None:
        with self._watched():
            self.env.step_async(actions)

    def recv(self) -> RawStep:
        with self._watched():
            self._wait()
            return self._step(self.env.step_wait())

    def _wait(self) -> None:
        """Wait until all have answered, in pieces: those in which all processes were stopped are no silence of theirs.

        Raises:
            multiprocessing.TimeoutError: one has been silent for too long.
        """
        waited = 0.0
        for pipe in self.env.parent_pipes:
            while not pipe.poll(piece := min(1.0, self._timeout - waited)):
                waited += piece
                if waited >= self._timeout:
                    raise multiprocessing.TimeoutError

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            with _quiet():
                yield
        except Exception as error:
            self._kill()  # a worker that hangs or died cannot be asked to close
            raise ActorError(self._explain(error)) from error

    def save_games(self) -> list[dict[str, Any]] | None:
        with self._watched():
            return super().save_games()

    def restore_games(self, games: list[dict[str, Any]]) -> bool:
        with self._watched():
            return super().restore_games(games)

    def close(self) -> None:
        if self.env.closed:
            return
        for pipe in filter(None, self.env.parent_pipes):
            with contextlib.suppress(OSError):  # the worker is gone already
                pipe.send(("close", None))
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        for process in self.env.processes:
            process.join(max(0.0, deadline - time.monotonic()))
        self._kill()

    def _explain(self, error: Exception) -> str:
        if isinstance(error, multiprocessing.TimeoutError):
            return f"an environment has not answered for {self._timeout:g} s (parallelism.timeout_s)."
        if isinstance(error, WorkerTraceback):
            return f"an environment raised:\n{error}"
        if isinstance(error, (EOFError, OSError)):  # of its pipe
            return f"an environment's process died ({type(error).__name__})."
        return f"an environment's process raised {type(error).__name__}: {error}"

    def _kill(self) -> None:
        for process in self.env.processes:
            process.kill()
            process.join()
        for pipe in filter(None, self.env.parent_pipes):  # Gymnasium drops the pipe of a worker that raised
            pipe.close()
        self.env.closed = True


def play_by_table(
    env: gymnasium.Env, best: np.ndarray, seed: int, games: int, longest: int, give_up: Callable[[], bool]
) -> list[tuple[list[int], list[float]]]:
    """Play whole games of one environment whose observations are one-hot numbers of states.

    A vector of environments and a network cost several times what a step of a small environment does.

    Args:
        best: the action of each state, ``(num_states,) int64``.
        longest: most steps of a game.
        give_up: asked now and then. True ends the play, as does a game that is too long.

    Returns:
        Actions and rewards of each game that ended.
    """
    action_of = list(best.astype(env.action_space.dtype))
    played = list[tuple[list[int], list[float]]]()
    with actor_errors():
        observation, _ = env.reset(seed=seed)
        while len(played) < games:
            if played:
                observation, _ = env.reset()
            actions, rewards = list[int](), list[float]()
            for number in range(longest):
                if number % GIVE_UP_EVERY == 0 and give_up():
                    return played
                action = action_of[observation.argmax()]
                observation, reward, terminated, truncated, _ = env.step(action)
                actions.append(action)
                rewards.append(float(reward))
                if terminated or truncated:
                    break
            else:
                return played
            played.append((actions, rewards))
    return played
