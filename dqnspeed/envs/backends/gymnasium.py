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

from dqnspeed.config.registry import register
from dqnspeed.config.schema import EnvConfig, RunConfig, WrappersConfig
from dqnspeed.envs.backends.base import ActorError, ActorErrors, Backend, Engine, RawStep
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
        if overlap:
            makers = [functools.partial(make_in_worker, make, seed, os.getpid()) for seed in seeds]
            return WorkerEngine(make_workers(makers, timeout), timeout)
        one = gymnasium.vector.SyncVectorEnv([make] * run.num_envs, copy=False, autoreset_mode=AUTORESET)
        return GymnasiumEngine(one)


def _make_resumable(env: EnvConfig, wrappers: WrappersConfig, render_mode: str | None) -> gymnasium.Env:
    return Resumable(make_env(env, wrappers, render_mode))


class GymnasiumEngine:
    """Engine over a Gymnasium vector environment, whose environments step one after another in :meth:`recv`."""

    device: torch.device | None = None

    def __init__(self, env: Any):
        self.env = env
        self.num_envs: int = env.num_envs

    def reset(self, seeds: list[int]) -> RawStep:
        with self._errors():
            frames, info = self._reset(seeds)
        nothing = np.zeros(self.num_envs, bool)
        return RawStep(frames, np.zeros(self.num_envs), nothing, nothing, info.get("lives"))

    def send(self, actions: np.ndarray) -> None:
        self._actions = actions

    def recv(self) -> RawStep:
        with self._errors():
            frames, rewards, terminated, truncated, info = self._step()
        return RawStep(frames, rewards, terminated, truncated, info.get("lives"))

    def save_games(self) -> list[dict[str, Any]] | None:
        with self._errors():
            return list(self.env.get_attr("game"))

    def restore_games(self, games: list[dict[str, Any]]) -> bool:
        with self._errors():
            self.env.set_attr("game", games)
            return all(self.env.get_attr("games_restored"))

    def call(self, name: str) -> Any:
        return self.env.call(name)[0]

    def close(self) -> None:
        self.env.close()

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return ActorErrors()

    def _reset(self, seeds: list[int]) -> Any:
        return self.env.reset(seed=seeds)

    def _step(self) -> Any:
        return self.env.step(self._actions)


class WorkerEngine(GymnasiumEngine):
    """Engine over :class:`Workers`: each environment steps in a process of its own after :meth:`send`.

    A worker that raises, dies, or hangs longer than ``timeout`` seconds ends the step with :class:`ActorError`.
    """

    def __init__(self, env: Any, timeout: float):
        super().__init__(env)
        self._timeout = timeout

    def send(self, actions: np.ndarray) -> None:
        with self._errors():
            self.env.step_async(actions)

    def _reset(self, seeds: list[int]) -> Any:
        self.env.reset_async(seed=seeds)
        self._wait()
        return self.env.reset_wait()

    def _step(self) -> Any:
        self._wait()
        return self.env.step_wait()

    def _wait(self) -> None:
        """Wait until all workers have answered, in short pieces, so that a pause of all processes counts for little.

        Raises:
            multiprocessing.TimeoutError: one worker has been silent for too long.
        """
        waited = 0.0
        for pipe in self.env.parent_pipes:
            while not pipe.poll(piece := min(1.0, self._timeout - waited)):
                waited += piece
                if waited >= self._timeout:
                    raise multiprocessing.TimeoutError

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Gymnasium announces the error that it raises next
                yield
        except Exception as error:
            self._kill()  # a worker that hangs or died cannot be asked to close
            raise ActorError(self._explain(error)) from error

    def _explain(self, error: Exception) -> str:
        if isinstance(error, multiprocessing.TimeoutError):
            return f"an environment has not answered for {self._timeout:g} s (parallelism.timeout_s)."
        if isinstance(error, WorkerTraceback):
            return f"an environment raised:\n{error}"
        return f"an environment's process died ({type(error).__name__}: {error})."

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
        best: action of each state, ``(num_states,) int64``.
        longest: maximum number of steps of a game; a longer game ends the play.
        give_up: called now and then; True ends the play.

    Returns:
        Actions and rewards of each game that ended.
    """
    action_of = list(best.astype(env.action_space.dtype))
    played = list[tuple[list[int], list[float]]]()
    with ActorErrors():
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
