"""The three libraries that step several environments, behind one interface for :class:`VectorEnv`.

All run in Gymnasium's NEXT_STEP autoreset: the step after an episode's end ignores its action and returns the
first frame of the next episode.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import numpy as np
import torch

from dqnspeed.system.messages import FOREIGN

CLOSE_TIMEOUT_S = 3.0
ASK_EVERY = 100  # steps of a game between two calls of ``give_up``

AnyArray = np.ndarray | torch.Tensor  # on the host, or on any device


class ActorError(Exception):
    """An environment raised, or an actor or worker process died or hung; the message holds the traceback if any.

    Not a RuntimeError: contextlib takes one that a StopIteration caused for that StopIteration itself.
    """


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress Gymnasium's warnings, which only announce the error it raises next."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _with_traceback() -> Iterator[None]:
    try:
        yield
    except FOREIGN as error:
        raise ActorError(f"an environment raised:\n{traceback.format_exc()}") from error


@dataclass(slots=True)
class RawStep:
    """One step of N environments as the library returns it.

    Frames may be a tensor on any device, ready on that device's current stream. They stay there: stacks and the network
    take them as they are, and a memory on that device too. What is counted of games is NumPy's.
    """

    frames: AnyArray  # (N, C, ...)
    rewards: np.ndarray  # (N,) unclipped
    terminated: np.ndarray  # (N,) bool
    truncated: np.ndarray  # (N,) bool
    lives: np.ndarray | None  # (N,) int, where the game has lives


class Backend(Protocol):
    """Plays N games for :class:`~dqnspeed.envs.vector.VectorEnv`.

    Attributes:
        device: where actions may be given as a tensor; ``None``: they are arrays.
    """

    num_envs: int
    device: torch.device | None

    def reset(self, seeds: list[int]) -> RawStep: ...
    def send(self, actions: Any) -> None:
        """Start a step with ``actions`` ``(N,) int64``, an array or a tensor on ``device``.

        Where sticky actions are not ALE's own, ``~a`` is the action ``a`` that they do not replace.
        """

    def recv(self) -> RawStep: ...
    def games(self) -> list[dict[str, Any]] | None:
        """The games in progress, or ``None`` if the library cannot save them."""

    def set_games(self, games: list[dict[str, Any]]) -> bool:
        """Restore saved games; False if one could not be restored."""

    def call(self, name: str) -> Any:
        """Call a method of the first environment."""

    def close(self) -> None: ...


class _GymnasiumBackend:
    device: torch.device | None = None

    def __init__(self, env: Any):
        self.env = env
        self.num_envs: int = env.num_envs

    def reset(self, seeds: list[int]) -> RawStep:
        return self._first_step(*self.env.reset(seed=seeds))

    def games(self) -> list[dict[str, Any]] | None:
        return list(self.env.get_attr("game"))

    def set_games(self, games: list[dict[str, Any]]) -> bool:
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


class SyncBackend(_GymnasiumBackend):
    """``gymnasium.vector.SyncVectorEnv``: environments step one after another inside :meth:`recv`.

    What one of them raises becomes an :class:`ActorError`, as from processes.
    """

    def reset(self, seeds: list[int]) -> RawStep:
        with _with_traceback():
            return super().reset(seeds)

    def send(self, actions: np.ndarray) -> None:
        self._actions = actions

    def recv(self) -> RawStep:
        with _with_traceback():
            return self._step(self.env.step(self._actions))


class AsyncBackend(_GymnasiumBackend):
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

    def games(self) -> list[dict[str, Any]] | None:
        with self._watched():
            return super().games()

    def set_games(self, games: list[dict[str, Any]]) -> bool:
        with self._watched():
            return super().set_games(games)

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


class WorkerTraceback(Exception):
    """What an environment raised in a worker process, as text."""


class TracebackToParent(gymnasium.Wrapper):
    """Sends the traceback of an environment in a worker process along with its error."""

    def step(self, action: Any) -> Any:
        with self._with_traceback():
            return self.env.step(action)

    def reset(self, **kwargs: Any) -> Any:
        with self._with_traceback():
            return self.env.reset(**kwargs)

    @contextlib.contextmanager
    def _with_traceback(self) -> Iterator[None]:
        try:
            yield
        except FOREIGN as error:
            raise WorkerTraceback(traceback.format_exc()) from error


class NativeBackend(_GymnasiumBackend):
    """``ale_py.vector_env.AtariVectorEnv``: environments step on C++ threads after :meth:`send`.

    Args:
        start_rewards: rewards before a game's first step, which ALE drops, by the frame it starts at.
    """

    def __init__(self, env: Any, start_rewards: Mapping[int, float] | None = None):
        super().__init__(env)
        self._channels_last = len(env.single_observation_space.shape) == 4
        self._start_rewards = start_rewards
        self._pending_reward = np.zeros(self.num_envs)
        self._over = np.zeros(self.num_envs, bool)

    def reset(self, seeds: list[int]) -> RawStep:
        frames, info = self.env.reset(seed=np.array(seeds))
        if self._start_rewards is not None:
            self._set_pending_reward(np.ones(self.num_envs, bool), info)
            self._over = np.zeros(self.num_envs, bool)
        return self._first_step(self._frames(frames), info)

    def games(self) -> list[dict[str, Any]] | None:
        return None  # ALE's vector environment cannot save games

    def send(self, actions: np.ndarray) -> None:
        self.env.send(actions)

    def recv(self) -> RawStep:
        frames, rewards, terminated, truncated, info = self.env.recv()
        if self._start_rewards is not None:
            rewards = rewards + self._pending_reward
            self._set_pending_reward(self._over, info)
            self._over = terminated | truncated
        return RawStep(self._frames(frames), rewards, terminated, truncated, info["lives"])

    def _set_pending_reward(self, new: np.ndarray, info: dict[str, Any]) -> None:
        """Set what the first step of each game in ``new`` ``(N,) bool`` brings beside its own reward."""
        assert self._start_rewards is not None
        self._pending_reward[:] = 0
        for i in np.flatnonzero(new):
            self._pending_reward[i] = self._start_rewards.get(int(info["episode_frame_number"][i]), 0.0)

    def _frames(self, frames: np.ndarray) -> np.ndarray:
        return frames[:, 0].transpose(0, 3, 1, 2) if self._channels_last else frames


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
    with _with_traceback():
        observation, _ = env.reset(seed=seed)
        while len(played) < games:
            if played:
                observation, _ = env.reset()
            actions, rewards = list[int](), list[float]()
            for number in range(longest):
                if number % ASK_EVERY == 0 and give_up():
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
